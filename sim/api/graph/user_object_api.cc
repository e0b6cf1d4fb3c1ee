// User objects and the references that graphs have.
#include <algorithm>
#include <climits>

#include "sim/graph/api.h"

using namespace fargpu::sim;

namespace {

// body(const std::shared_ptr<UserObject>&)
template <typename Body>
CUresult with_object(CUuserObject handle, unsigned count, Body&& body) {
  return with_graphs([&]() -> CUresult {
    const auto object = Driver::get().registry().find<UserObject>(handle);
    if (!object || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
    return body(object);
  });
}

}  // namespace

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                    unsigned int initialRefcount, unsigned int flags) {
  return with_graphs([&]() -> CUresult {
    if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
        initialRefcount > INT_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto object = std::make_shared<UserObject>(ptr, destroy, initialRefcount);
    const uint64_t handle = Driver::get().registry().add(object, 0);
    object->set_handle(handle);
    *object_out = to_handle<CUuserObject>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](const auto& found) -> CUresult {
    found->retain(count);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](const auto& found) -> CUresult {
    found->release(std::min<uint64_t>(count, found->references()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags) {
  return with_object(object, count, [&](const auto& found) -> CUresult {
    const auto holder = find_graph(graph);
    if (!holder || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const bool move = (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0;
    if (move && count > found->references()) return CUDA_ERROR_INVALID_VALUE;
    if (!move) found->retain(count);
    holder->objects.add(found, count);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return with_object(object, count, [&](const auto& found) -> CUresult {
    const auto holder = find_graph(graph);
    if (!holder) return CUDA_ERROR_INVALID_VALUE;
    // References that the graph does not have are none to give up.
    (void)holder->objects.release(found, count);
    return CUDA_SUCCESS;
  });
}
