#include "client/graph/user_object.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/process/process.h"
#include "client/process/tables.h"

namespace fargpu::client {

CUresult make_user_object(void* data, CUhostFn destroy, unsigned references, UserObject** object) {
  HandleTable& handles = Process::get().tables()->handles;
  const uint64_t id = handles.reserve(rpc::HandleKind::kUserObject);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<UserObject>();
  made->id = id;
  made->session = Process::get().session(0);
  made->destroy = destroy;
  made->data = data;
  made->references = references;
  *object = static_cast<UserObject*>(handles.publish(std::move(made)));
  return CUDA_SUCCESS;
}

UserObject* find_user_object(CUuserObject object) {
  return static_cast<UserObject*>(Process::get().tables()->handles.find(
      rpc::HandleKind::kUserObject, reinterpret_cast<uint64_t>(object)));
}

void retain(CUuserObject object, unsigned count) {
  if (UserObject* const found = find_user_object(object)) found->references += count;
}

void release(CUuserObject object, unsigned count) {
  UserObject* const found = find_user_object(object);
  if (found == nullptr) return;
  uint64_t had = found->references.load();
  while (!found->references.compare_exchange_weak(had, had - std::min<uint64_t>(had, count))) {
  }
  if (had == 0 || had > count) return;
  const CUhostFn destroy = found->destroy;
  void* const data = found->data;
  Process::get().tables()->handles.erase(found->id);
  destroy(data);
}

}  // namespace fargpu::client
