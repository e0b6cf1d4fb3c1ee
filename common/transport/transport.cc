#include "common/transport/transport.h"

#include <cstring>

namespace fargpu::transport {

Status Transport::post(const wire::FrameHeader& header, std::span<const std::byte> body) {
  const size_t bytes = sizeof header + body.size();
  FARGPU_ASSIGN_OR_RETURN(const auto slot, reserve(bytes, Deadline()));
  std::memcpy(slot.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(slot.data() + sizeof header, body.data(), body.size());
  return commit(bytes, {}, kNoDeadline);
}

}  // namespace fargpu::transport
