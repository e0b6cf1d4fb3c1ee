#include "server/handover/session_statistics.h"

#include <algorithm>
#include <cstring>

namespace fargpu::server {

void SessionStatistics::set_transport(std::string_view text) {
  const size_t bytes = std::min(text.size(), sizeof transport);
  std::memcpy(transport, text.data(), bytes);
  transport_bytes.store(static_cast<uint32_t>(bytes), std::memory_order_release);
}

std::string SessionStatistics::transport_text() const {
  const size_t bytes = transport_bytes.load(std::memory_order_acquire);
  return std::string(transport, std::min(bytes, sizeof transport));
}

}  // namespace fargpu::server
