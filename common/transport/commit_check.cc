#include "common/transport/commit_check.h"

#include <fmt/core.h>

namespace fargpu::transport {

Status commit_refused(Bytes slot, size_t bytes, uint64_t bulk_bytes) {
  wire::FrameHeader header;
  if (bytes > slot.size() || bytes < sizeof header) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("commit of {} bytes into a slot of {}", bytes, slot.size()));
  }
  std::memcpy(&header, slot.data(), sizeof header);
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("frame of {} + {} bytes whose header says {} + {}", bytes - sizeof header,
                  bulk_bytes, header.body_bytes, header.bulk_bytes));
}

}  // namespace fargpu::transport
