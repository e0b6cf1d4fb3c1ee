// Frames with recognisable contents, and a handler that keeps what it receives.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/address_check.h"
#include "common/transport/transport.h"

namespace fargpu::test {

using Bytes = std::span<const std::byte>;

// Word by word: a byte at a time is slow under sanitizers.
inline std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < bytes; i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data.data() + i, &state, std::min(sizeof state, bytes - i));
  }
  return data;
}

inline bool same(Bytes left, Bytes right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

// What send_frame() begins with, for peers that write their bytes by hand.
inline wire::FrameHeader header_of(uint32_t body_bytes, uint64_t bulk_bytes) {
  wire::FrameHeader header;
  header.opcode = 100;
  header.body_bytes = body_bytes;
  header.bulk_bytes = bulk_bytes;
  return header;
}

// A frame whose body and bulk are pattern(size, sequence) and pattern(size, ~sequence); bulk is cut
// into `pieces`.
inline Status send_frame(transport::Transport& transport, uint32_t sequence, size_t body_bytes,
                         size_t bulk_bytes, size_t pieces = 1,
                         transport::Deadline deadline = transport::kNoDeadline) {
  wire::FrameHeader header = header_of(static_cast<uint32_t>(body_bytes), bulk_bytes);
  header.sequence = sequence;
  auto slot = transport.reserve(sizeof header + body_bytes, deadline);
  if (!slot.ok()) return slot.status();
  if (reinterpret_cast<uintptr_t>(slot->data()) % 8 != 0)
    return Status(StatusCode::kSystem, "slot not aligned");
  std::memcpy(slot->data(), &header, sizeof header);
  const auto body = pattern(body_bytes, sequence);
  if (!body.empty()) std::memcpy(slot->data() + sizeof header, body.data(), body.size());
  auto bulk = pattern(bulk_bytes, ~sequence);
  std::vector<Bytes> cut;
  for (size_t i = 0; i < pieces; ++i) {
    const size_t begin = bulk_bytes * i / pieces, end = bulk_bytes * (i + 1) / pieces;
    cut.push_back(Bytes(bulk).subspan(begin, end - begin));
  }
  Status status = transport.commit(sizeof header + body_bytes, cut, deadline);
  if (!bulk.empty()) std::memset(bulk.data(), 0xee, bulk.size());  // taken: may change now
  return status;
}

// Checks contents and alignment of frames from send_frame as they arrive.
class CheckingHandler final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes body) override {
    if (body.size() != header.body_bytes)
      return Status(StatusCode::kSystem, "body not there for bulk_buffer");
    bulk_.assign(header.bulk_bytes, std::byte{0});
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override {
    headers.push_back(header);
    const auto expected_body = pattern(header.body_bytes, header.sequence);
    const auto expected_bulk = pattern(header.bulk_bytes, ~header.sequence);
    if (!body.empty() && reinterpret_cast<uintptr_t>(body.data()) % 8 != 0) ++unaligned;
    if (address_check::kOn && !body.empty() &&
        !address_check::is_poisoned(body.data() + body.size()))
      ++unguarded;
    if (!same(body, expected_body)) ++wrong;
    if (!same(bulk, expected_bulk)) ++wrong;
    if (header.bulk_bytes > 0 && bulk.data() != bulk_.data()) ++wrong;
    return fail_with;
  }

  std::vector<wire::FrameHeader> headers;
  int wrong = 0, unaligned = 0;
  int unguarded = 0;  // a read behind the body would not show, where such reads do
  Status fail_with;

 private:
  std::vector<std::byte> bulk_;
};

}  // namespace fargpu::test
