// User objects: references of the application and of graphs.
#include "client/graph/user_object.h"

#include <limits>

#include "client/graph/graph.h"
#include "generated/client/manual.h"

namespace fargpu::client {
namespace {

constexpr unsigned kMostReferences = std::numeric_limits<int>::max();

bool is_possible(unsigned count) { return count != 0 && count <= kMostReferences; }

}  // namespace

CUresult manual_cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                   unsigned int initialRefcount, unsigned int flags) {
  // The flag is required: no call may wait for a destructor.
  if (object_out == nullptr || destroy == nullptr || !is_possible(initialRefcount) ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  UserObject* object = nullptr;
  const CUresult result = make_user_object(ptr, destroy, initialRefcount, &object);
  if (result == CUDA_SUCCESS) *object_out = reinterpret_cast<CUuserObject>(object->id);
  return result;
}

CUresult manual_cuUserObjectRetain(CUuserObject object, unsigned int count) {
  if (find_user_object(object) == nullptr || !is_possible(count)) return CUDA_ERROR_INVALID_VALUE;
  retain(object, count);
  return CUDA_SUCCESS;
}

CUresult manual_cuUserObjectRelease(CUuserObject object, unsigned int count) {
  if (find_user_object(object) == nullptr || !is_possible(count)) return CUDA_ERROR_INVALID_VALUE;
  release(object, count);
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                        unsigned int flags) {
  const GraphLock lock;
  Graph* const in = find_graph(graph);
  if (in == nullptr || find_user_object(object) == nullptr || !is_possible(count) ||
      (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Moved references were the caller's.
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) retain(object, count);
  in->user_objects[object] += count;
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  const GraphLock lock;
  Graph* const in = find_graph(graph);
  if (in == nullptr || find_user_object(object) == nullptr || !is_possible(count))
    return CUDA_ERROR_INVALID_VALUE;
  // A driver says nothing of references that the graph does not have, and gives up none.
  const auto held = in->user_objects.find(object);
  if (held == in->user_objects.end() || held->second < count) return CUDA_SUCCESS;
  held->second -= count;
  if (held->second == 0) in->user_objects.erase(held);
  GraphLock::release_later(object, count);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
