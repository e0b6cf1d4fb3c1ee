// What both builds of the transport have, with rdma and without.
#include <fmt/core.h>

#include "common/transport/rdma/rdma.h"

namespace fargpu::transport {

RdmaOptions rdma_options(const StreamOptions& options) {
  RdmaOptions made;
  made.receive_limits = options.receive_limits;
  made.max_send_body_bytes = options.max_send_body_bytes;
  made.stall_timeout = options.stall_timeout;
  made.spin = options.spin;
  return made;
}

std::string RdmaGid::text() const { return fmt::format("GID {} {} ({})", index, value, type); }

std::string RdmaPort::text() const {
  std::string text =
      fmt::format("{} port {}: {}, {}, mtu {}", device, port, state, link_layer, mtu);
  for (const RdmaGid& gid : gids) text += ", " + gid.text();
  return text;
}

}  // namespace fargpu::transport
