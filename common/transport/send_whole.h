// One frame of a connection that carries little but bulk: written, sent and flushed in one step.
#pragma once

#include <cstring>
#include <span>

#include "common/transport/transport.h"

namespace fargpu::transport {

// Sets the header's lengths. Waits for the peer to take it all; an error is the transport's. One
// thread at a time, as for every sender.
inline Status send_whole(Transport& transport, wire::FrameHeader header,
                         std::span<const std::byte> body, std::span<const std::byte> bulk) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.bulk_bytes = bulk.size();
  const size_t bytes = sizeof header + body.size();
  FARGPU_ASSIGN_OR_RETURN(const auto slot, transport.reserve(bytes, kNoDeadline));
  std::memcpy(slot.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(slot.data() + sizeof header, body.data(), body.size());
  FARGPU_RETURN_IF_ERROR(
      transport.commit(bytes, std::span(&bulk, bulk.empty() ? 0 : 1), kNoDeadline));
  return transport.flush(kNoDeadline);
}

}  // namespace fargpu::transport
