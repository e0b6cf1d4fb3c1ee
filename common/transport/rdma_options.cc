// What both builds of the transport have, with rdma and without.
#include <fmt/format.h>

#include "common/transport/rdma.h"

namespace fargpu::transport {

RdmaOptions rdma_options(const StreamOptions& options) {
  RdmaOptions made;
  made.receive_limits = options.receive_limits;
  made.max_send_body_bytes = options.max_send_body_bytes;
  made.stall_timeout = options.stall_timeout;
  made.spin = options.spin;
  return made;
}

std::string RdmaPort::text() const {
  return fmt::format("{} port {}: {}, {}, mtu {}{}{}", device, port, state, link_layer, mtu,
                     gid.empty() ? "" : ", gid ", gid);
}

}  // namespace fargpu::transport
