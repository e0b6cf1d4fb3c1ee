// The addresses of a port: each entry of its GID table is one way to be addressed, and for RoCE
// also a version of the protocol. Inside the rdma transport only; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/transport/rdma/rdma.h"
#include "common/transport/rdma/rdma_library.h"

namespace fargpu::transport {

// nullopt: there is no such entry, or it is empty.
std::optional<RdmaGid> query_gid(ibv_context* context, uint8_t port, unsigned index);
// Those that are in use, by index.
std::vector<RdmaGid> list_gids(ibv_context* context, uint8_t port);

}  // namespace fargpu::transport
