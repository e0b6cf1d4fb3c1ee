// libibverbs and librdmacm, loaded when the first session asks for rdma.
//
// Our programs must start on machines without rdma-core, above all the client library inside an
// application, so nothing links against it. Inline functions of verbs.h (posting, polling, arming)
// need no symbol. Constant once loaded; any thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/status.h"

namespace fargpu::transport {

#define FARGPU_VERBS_FUNCTIONS(X) \
  X(alloc_pd)                     \
  X(dealloc_pd)                   \
  X(reg_mr_iova2)                 \
  X(dereg_mr)                     \
  X(create_comp_channel)          \
  X(destroy_comp_channel)         \
  X(create_cq)                    \
  X(destroy_cq)                   \
  X(get_cq_event)                 \
  X(ack_cq_events)                \
  X(query_qp)                     \
  X(query_port)                   \
  X(query_gid)                    \
  X(query_device)                 \
  X(get_device_list)              \
  X(free_device_list)             \
  X(open_device)                  \
  X(close_device)                 \
  X(fork_init)                    \
  X(wc_status_str)                \
  X(port_state_str)
#define FARGPU_RDMA_CM_FUNCTIONS(X) \
  X(create_event_channel)           \
  X(destroy_event_channel)          \
  X(create_id)                      \
  X(destroy_id)                     \
  X(bind_addr)                      \
  X(resolve_addr)                   \
  X(resolve_route)                  \
  X(create_qp)                      \
  X(destroy_qp)                     \
  X(connect)                        \
  X(listen)                         \
  X(accept)                         \
  X(reject)                         \
  X(disconnect)                     \
  X(migrate_id)                     \
  X(get_cm_event)                   \
  X(ack_cm_event)                   \
  X(event_str)                      \
  X(set_option)                     \
  X(get_src_port)

struct RdmaLibrary {
#define FARGPU_MEMBER(name) decltype(&::ibv_##name) name = nullptr;
  FARGPU_VERBS_FUNCTIONS(FARGPU_MEMBER)
#undef FARGPU_MEMBER
#define FARGPU_MEMBER(name) decltype(&::rdma_##name) cm_##name = nullptr;
  FARGPU_RDMA_CM_FUNCTIONS(FARGPU_MEMBER)
#undef FARGPU_MEMBER
  // Newer than the rest: null in an old rdma-core.
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;
  decltype(&::ibv_is_fork_initialized) is_fork_initialized = nullptr;
};

// kUnsupported: rdma-core is not installed.
Result<const RdmaLibrary*> rdma_library();
// Once rdma_library() has succeeded.
const RdmaLibrary& rdma();

}  // namespace fargpu::transport
