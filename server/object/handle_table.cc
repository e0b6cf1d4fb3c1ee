#include "server/object/handle_table.h"

#include "generated/rpc/handle_rules.h"

namespace fargpu::server {

using rpc::HandleKind;

CUresult HandleTable::find(HandleKind kind, uint64_t id, void** handle) const {
  if (rpc::handle_kind(id) != kind) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = objects_.find(id);
  if (found == objects_.end()) return CUDA_ERROR_INVALID_HANDLE;
  *handle = found->second.handle;
  return CUDA_SUCCESS;
}

const HandleTable::Object* HandleTable::find(uint64_t id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : &found->second;
}

CUresult HandleTable::add(HandleKind kind, uint64_t id, const Object& made) {
  // An id that does not survive being taken apart and put together has bits where none belong.
  if (kind == HandleKind::kNone || rpc::handle_kind(id) != kind || rpc::handle_serial(id) == 0 ||
      rpc::make_handle(kind, rpc::handle_serial(id), rpc::handle_session(id)) != id) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (made.parent != 0 &&
      (!rpc::may_be_parent(rpc::handle_kind(made.parent), kind) || find(made.parent) == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  Object object = made;
  if (rpc::outlives_context(kind)) object.context = 0;
  if (objects_.size() >= max_objects_) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!objects_.emplace(id, object).second) return CUDA_ERROR_INVALID_VALUE;
  if (object.parent != 0) children_.emplace(object.parent, id);
  if (kind == HandleKind::kStream) streams_[object.context].push_back(object.handle);
  return CUDA_SUCCESS;
}

void HandleTable::replace(uint64_t id, void* handle) {
  const auto found = objects_.find(id);
  if (found != objects_.end()) found->second.handle = handle;
}

void HandleTable::remove(uint64_t id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  if (const uint64_t parent = found->second.parent; parent != 0) {
    auto [begin, end] = children_.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      if (child->second != id) continue;
      children_.erase(child);
      break;
    }
  }
  if (rpc::handle_kind(id) == HandleKind::kStream) {
    std::vector<void*>& streams = streams_[found->second.context];
    std::erase(streams, found->second.handle);
    if (streams.empty()) streams_.erase(found->second.context);
  }
  const ObjectEnd ended{id, found->second.handle, found->second.context};
  objects_.erase(found);
  if (tell_) tell_(ended);
  std::vector<uint64_t> orphans;
  auto [begin, end] = children_.equal_range(id);
  for (auto child = begin; child != end; ++child) orphans.push_back(child->second);
  children_.erase(begin, end);
  for (const uint64_t orphan : orphans) remove(orphan);
}

void HandleTable::remove_context(uint16_t context) {
  std::vector<uint64_t> gone;
  for (const auto& [id, object] : objects_) {
    if (object.context == context) gone.push_back(id);
  }
  for (const uint64_t id : gone) remove(id);
}

std::span<void* const> HandleTable::streams(uint16_t context) const {
  const auto found = streams_.find(context);
  return found == streams_.end() ? std::span<void* const>() : found->second;
}

}  // namespace fargpu::server
