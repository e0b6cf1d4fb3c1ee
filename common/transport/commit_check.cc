#include "common/transport/commit_check.h"

#include <fmt/core.h>

#include <cstring>

namespace fargpu::transport {

Result<uint64_t> check_commit(Bytes slot, size_t bytes, std::span<const Bytes> bulk) {
  wire::FrameHeader header;
  if (bytes > slot.size() || bytes < sizeof header) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("commit of {} bytes into a slot of {}", bytes, slot.size()));
  }
  uint64_t bulk_bytes = 0;
  for (const Bytes& piece : bulk) bulk_bytes += piece.size();
  std::memcpy(&header, slot.data(), sizeof header);
  if (header.bulk_bytes != bulk_bytes || header.body_bytes != bytes - sizeof header) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("frame of {} + {} bytes whose header says {} + {}", bytes - sizeof header,
                    bulk_bytes, header.body_bytes, header.bulk_bytes));
  }
  return bulk_bytes;
}

}  // namespace fargpu::transport
