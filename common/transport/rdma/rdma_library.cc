#include "common/transport/rdma/rdma_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "common/base/check.h"

namespace fargpu::transport {
namespace {

struct Loaded {
  RdmaLibrary functions;
  Status status;

  Loaded() { status = load(); }

  template <typename Function>
  static Status find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function != nullptr) return Status();
    return Status(StatusCode::kUnsupported, fmt::format("rdma-core is too old: no {}", name));
  }

  Status load() {
    // Never closed: providers leave threads and handlers behind.
    void* verbs = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void* cm = verbs == nullptr ? nullptr : ::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cm == nullptr) {
      const char* why = ::dlerror();
      return Status(StatusCode::kUnsupported,
                    fmt::format("rdma-core is not installed ({})",
                                why == nullptr ? "libibverbs.so.1, librdmacm.so.1" : why));
    }
#define FARGPU_FIND(name) FARGPU_RETURN_IF_ERROR(find(verbs, "ibv_" #name, functions.name));
    FARGPU_VERBS_FUNCTIONS(FARGPU_FIND)
#undef FARGPU_FIND
#define FARGPU_FIND(name) FARGPU_RETURN_IF_ERROR(find(cm, "rdma_" #name, functions.cm_##name));
    FARGPU_RDMA_CM_FUNCTIONS(FARGPU_FIND)
#undef FARGPU_FIND
    (void)find(verbs, "ibv_reg_dmabuf_mr", functions.reg_dmabuf_mr);
    (void)find(verbs, "ibv_is_fork_initialized", functions.is_fork_initialized);
    // Kernels that copy pinned pages at fork need nothing; with others a forked child would take
    // the pages that the adapter knows.
    if (functions.is_fork_initialized == nullptr ||
        functions.is_fork_initialized() == IBV_FORK_DISABLED) {
      functions.fork_init();
    }
    return Status();
  }
};

const Loaded& loaded() {
  static const Loaded once;
  return once;
}

}  // namespace

Result<const RdmaLibrary*> rdma_library() {
  FARGPU_RETURN_IF_ERROR(loaded().status);
  return &loaded().functions;
}

const RdmaLibrary& rdma() {
  FARGPU_CHECK(loaded().status.ok());
  return loaded().functions;
}

}  // namespace fargpu::transport
