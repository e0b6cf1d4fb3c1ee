// The checks of commit() that all transports share.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "common/wire/frame.h"

namespace fargpu::transport {

using Bytes = std::span<const std::byte>;

// kInvalidArgument, with the fault of this frame.
Status commit_refused(Bytes slot, size_t bytes, uint64_t bulk_bytes);

// `slot` is the result of reserve(), of which `bytes` are the frame. The number of bulk bytes, or
// kInvalidArgument when the frame does not fit its slot or its header says otherwise.
inline Result<uint64_t> check_commit(Bytes slot, size_t bytes, std::span<const Bytes> bulk) {
  uint64_t bulk_bytes = 0;
  for (const Bytes& piece : bulk) bulk_bytes += piece.size();
  wire::FrameHeader header;
  if (bytes > slot.size() || bytes < sizeof header) return commit_refused(slot, bytes, bulk_bytes);
  std::memcpy(&header, slot.data(), sizeof header);
  if (header.bulk_bytes != bulk_bytes || header.body_bytes != bytes - sizeof header)
    return commit_refused(slot, bytes, bulk_bytes);
  return bulk_bytes;
}

}  // namespace fargpu::transport
