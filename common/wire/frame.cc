#include "common/wire/frame.h"

#include <fmt/core.h>

#include <bit>
#include <string>

static_assert(std::endian::native == std::endian::little,
              "the wire format is this machine's memory");

namespace fargpu::wire {
namespace {

Status broken(std::string message) { return Status(StatusCode::kProtocol, std::move(message)); }

}  // namespace

Status check_header(const FrameHeader& header, const FrameLimits& limits) {
  if (header.magic != kMagic) {
    return broken(
        fmt::format("frame begins with {:#06x} instead of {:#06x}: the peer does not speak fargpu",
                    header.magic, kMagic));
  }
  if ((header.flags & ~kKnownFlags) != 0) {
    return broken(fmt::format("frame with opcode {} has unknown flags {:#06x}", header.opcode,
                              header.flags & ~kKnownFlags));
  }
  if (header.reserved != 0) {
    return broken(fmt::format("frame with opcode {} has {:#x} in the reserved field", header.opcode,
                              header.reserved));
  }
  if (header.body_bytes % 8 != 0) {
    return broken(fmt::format("frame with opcode {} has a body of {} bytes, not a multiple of 8",
                              header.opcode, header.body_bytes));
  }
  if (header.body_bytes > limits.max_body_bytes) {
    return broken(fmt::format("frame with opcode {} has a body of {} bytes, the limit is {}",
                              header.opcode, header.body_bytes, limits.max_body_bytes));
  }
  if (header.bulk_bytes > limits.max_bulk_bytes) {
    return broken(fmt::format("frame with opcode {} has {} bytes of bulk data, the limit is {}",
                              header.opcode, header.bulk_bytes, limits.max_bulk_bytes));
  }
  return Status();
}

}  // namespace fargpu::wire
