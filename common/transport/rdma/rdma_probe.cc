// What doctor shows of RDMA: which port is on a route, and what is there at all.
#include <arpa/inet.h>
#include <fmt/core.h>

#include "common/transport/rdma/rdma.h"
#include "common/transport/rdma/rdma_cm.h"
#include "common/transport/rdma/rdma_gid.h"

namespace fargpu::transport {
namespace {

Result<RdmaPort> describe_port(ibv_context* context, uint8_t number) {
  ibv_port_attr port{};
  if (const int error =
          rdma().query_port(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&port));
      error != 0)
    return system_error(fmt::format("cannot ask port {} of {}", number, context->device->name),
                        error);
  RdmaPort made;
  made.device = context->device->name;
  made.port = number;
  made.active = port.state == IBV_PORT_ACTIVE;
  made.state = made.active ? "active" : rdma().port_state_str(port.state);
  made.link_layer = port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
  made.mtu = 128u << port.active_mtu;
  return made;
}

Result<RdmaPort> describe_id(const CmId& id) {
  if (id.get()->verbs == nullptr)
    return Status(StatusCode::kNotFound, "the address belongs to no single RDMA device");
  FARGPU_RETURN_IF_ERROR(check_device(id.get()->verbs));
  FARGPU_ASSIGN_OR_RETURN(RdmaPort port, describe_port(id.get()->verbs, id.get()->port_num));
  // rdma_cm tells the address, not its place in the table; several entries may have it, of which
  // rdma_cm takes the newest protocol.
  char value[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, id.get()->route.addr.addr.ibaddr.sgid.raw, value, sizeof value);
  for (RdmaGid& gid : list_gids(id.get()->verbs, id.get()->port_num)) {
    if (gid.value == value) port.gids = {std::move(gid)};
  }
  return port;
}

}  // namespace

Result<RdmaPort> probe_rdma_route(const SocketAddress& remote, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(CmId id, CmId::create());
  FARGPU_RETURN_IF_ERROR(id.resolve(remote, deadline));
  return describe_id(id);
}

Result<RdmaPort> probe_rdma_local(const SocketAddress& local) {
  FARGPU_ASSIGN_OR_RETURN(CmId id, CmId::create());
  SocketAddress address = local;
  address.set_port(0);
  FARGPU_RETURN_IF_ERROR(id.bind(address));
  return describe_id(id);
}

Result<std::vector<RdmaPort>> list_rdma_ports() {
  FARGPU_RETURN_IF_ERROR(rdma_library().status());
  std::vector<RdmaPort> ports;
  int count = 0;
  ibv_device** devices = rdma().get_device_list(&count);
  if (devices == nullptr) return ports;
  for (int i = 0; i < count; ++i) {
    ibv_context* context = rdma().open_device(devices[i]);
    if (context == nullptr) continue;
    ibv_device_attr device{};
    if (rdma().query_device(context, &device) == 0) {
      for (unsigned number = 1; number <= device.phys_port_cnt; ++number) {
        auto port = describe_port(context, static_cast<uint8_t>(number));
        if (!port.ok()) continue;
        port->gids = list_gids(context, static_cast<uint8_t>(number));
        ports.push_back(std::move(*port));
      }
    }
    rdma().close_device(context);
  }
  rdma().free_device_list(devices);
  return ports;
}

}  // namespace fargpu::transport
