// The parser of the byte stream: any bytes, in pieces of any size. The first input byte chooses the
// pieces.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/transport/frame_assembler.h"

namespace {

using namespace fargpu;

void require(bool condition) {
  if (!condition) std::abort();
}

class Handler final : public transport::FrameHandler {
 public:
  explicit Handler(const wire::FrameLimits& limits) : limits_(limits) {}

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override {
    check(header, body);
    require(header.bulk_bytes > 0);
    if (header.opcode == 666) return Status(StatusCode::kProtocol, "unwanted");
    bulk_.assign(header.bulk_bytes, std::byte{0});
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override {
    check(header, body);
    require(bulk.size() == header.bulk_bytes);
    ++frames;
    return header.opcode == 667 ? Status(StatusCode::kProtocol, "unwanted") : Status();
  }
  size_t frames = 0;

 private:
  void check(const wire::FrameHeader& header, std::span<const std::byte> body) {
    require(check_header(header, limits_).ok());
    require(body.size() == header.body_bytes);
    require(body.empty() || reinterpret_cast<uintptr_t>(body.data()) % 8 == 0);
    for (std::byte byte : body) sum_ += static_cast<unsigned>(byte);  // every byte is readable
  }
  const wire::FrameLimits limits_;
  std::vector<std::byte> bulk_;
  unsigned sum_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  wire::FrameLimits limits;
  limits.max_body_bytes = 1 << 10;
  limits.max_bulk_bytes = 1 << 12;
  transport::FrameAssembler assembler(limits);
  Handler handler(limits);
  const size_t step = 1 + data[0] % 97;
  std::span<const uint8_t> stream(data + 1, size - 1);
  size_t delivered = 0;
  while (!stream.empty()) {
    size_t left = std::min(step, stream.size()), filled = 0;
    for (auto room : assembler.writable()) {
      const size_t take = std::min(room.size(), left - filled);
      if (take == 0) continue;
      std::memcpy(room.data(), stream.data() + filled, take);
      filled += take;
    }
    require(filled > 0);
    stream = stream.subspan(filled);
    auto frames = assembler.advance(filled, handler);
    if (!frames.ok()) {
      require(frames.status().code() == StatusCode::kProtocol);
      return 0;
    }
    delivered += *frames;
  }
  require(delivered == handler.frames);
  return 0;
}
