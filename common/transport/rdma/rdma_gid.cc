#include "common/transport/rdma/rdma_gid.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <fstream>

namespace fargpu::transport {
namespace {

// An adapter has at most some hundreds of entries; a larger count is treated as wrong.
constexpr int kMaxEntries = 1024;

// The kernel tells the type of an entry as a file: "IB/RoCE v1" or "RoCE v2".
std::string gid_type(const ibv_context* context, uint8_t port, unsigned index) {
  if (context->device->transport_type == IBV_TRANSPORT_IWARP) return "iWARP";
  ibv_port_attr attributes{};
  if (rdma().query_port(const_cast<ibv_context*>(context), port,
                        reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) == 0 &&
      attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    return "InfiniBand";
  }
  std::ifstream file(
      fmt::format("{}/ports/{}/gid_attrs/types/{}", context->device->ibdev_path, port, index));
  std::string type;
  if (!std::getline(file, type)) return "RoCE, version unknown";
  return type == "IB/RoCE v1" ? "RoCE v1" : type;
}

}  // namespace

std::optional<RdmaGid> query_gid(ibv_context* context, uint8_t port, unsigned index) {
  ibv_gid gid{};
  if (rdma().query_gid(context, port, static_cast<int>(index), &gid) != 0) return std::nullopt;
  if (std::all_of(std::begin(gid.raw), std::end(gid.raw), [](uint8_t byte) { return byte == 0; }))
    return std::nullopt;
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return RdmaGid{index, text, gid_type(context, port, index)};
}

std::vector<RdmaGid> list_gids(ibv_context* context, uint8_t port) {
  ibv_port_attr attributes{};
  std::vector<RdmaGid> gids;
  if (rdma().query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) != 0)
    return gids;
  for (int index = 0; index < std::min(attributes.gid_tbl_len, kMaxEntries); ++index) {
    if (auto gid = query_gid(context, port, static_cast<unsigned>(index)))
      gids.push_back(std::move(*gid));
  }
  return gids;
}

}  // namespace fargpu::transport
