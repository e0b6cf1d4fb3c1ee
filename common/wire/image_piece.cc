#include "common/wire/image_piece.h"

#include <fmt/core.h>
#include <zstd.h>

#include <string>

namespace fargpu::wire {
namespace {

constexpr int kLevel = 1;          // about as fast as a disk; the next ones save little more
constexpr int kMaxWindowLog = 23;  // 8 MiB: what the receiver is ready to keep of a stream
constexpr size_t kPartBytes = 128 << 10;

Status broken(std::string_view what) {
  return {StatusCode::kProtocol, fmt::format("packed piece of an image: {}", what)};
}

}  // namespace

Result<Compression> parse_compression(std::string_view text) {
  if (text.empty() || text == "auto") return Compression::kAuto;
  if (text == "zstd") return Compression::kZstd;
  if (text == "none") return Compression::kNone;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}' is no compression; use auto, zstd or none", text));
}

void PiecePacker::Free::operator()(void* context) const {
  ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(context));
}

PiecePacker::PiecePacker() : context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) return;  // no memory: nothing is packed
  auto* context = static_cast<ZSTD_CCtx*>(context_.get());
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel);
}

PiecePacker::~PiecePacker() = default;

std::span<const std::byte> PiecePacker::pack(std::span<const std::byte> piece) {
  if (context_ == nullptr || piece.size() > kMaxPackedPieceBytes) return {};
  // The buffer has no room for a frame that does not pay, so zstd stops early.
  frame_.resize(piece.size() / 8 * 7);
  const size_t bytes = ZSTD_compress2(static_cast<ZSTD_CCtx*>(context_.get()), frame_.data(),
                                      frame_.size(), piece.data(), piece.size());
  if (ZSTD_isError(bytes)) return {};
  return std::span(frame_).first(bytes);
}

Status unpack_piece(std::span<const std::byte> frame, uint64_t raw_bytes,
                    const std::function<Status(std::span<const std::byte>)>& sink) {
  if (raw_bytes == 0 || raw_bytes > kMaxPackedPieceBytes) {
    return broken(
        fmt::format("{} bytes announced; 1 to {} are allowed", raw_bytes, kMaxPackedPieceBytes));
  }
  const unsigned long long content = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (content != raw_bytes) {
    return broken("the frame names another size than the message, or none");
  }
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   &ZSTD_freeDCtx);
  if (context == nullptr) return {StatusCode::kSystem, "no memory to unpack an image"};
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  std::vector<std::byte> part(kPartBytes);
  ZSTD_inBuffer in{frame.data(), frame.size(), 0};
  for (uint64_t done = 0;;) {
    ZSTD_outBuffer out{part.data(), part.size(), 0};
    const size_t left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left)) return broken(ZSTD_getErrorName(left));
    if (out.pos > raw_bytes - done) return broken("more bytes than announced");
    done += out.pos;
    if (out.pos > 0) FARGPU_RETURN_IF_ERROR(sink(std::span(part).first(out.pos)));
    if (left == 0) {
      if (done != raw_bytes) return broken("fewer bytes than announced");
      return in.pos == in.size ? Status() : broken("bytes behind the frame");
    }
    if (out.pos == 0 && in.pos == in.size) return broken("cut off");
  }
}

}  // namespace fargpu::wire
