// What messages have instead of the application's arguments: ids for handles, the worker's ordinals
// for devices. Used by generated code, and where a message is made or sent by hand.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "client/entry/call.h"
#include "client/link/message.h"
#include "common/rpc/handle_kind.h"
#include "schema/support/small_buffer.h"

namespace fargpu::client {

template <typename Handle>
uint64_t handle_value(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<uint64_t>(handle);
  } else {
    return static_cast<uint64_t>(handle);
  }
}
template <typename Handle>
Handle handle_from(uint64_t id) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(id);
  } else {
    return static_cast<Handle>(id);
  }
}

// A handle that must be there. A CUfunction may be a CUkernel in disguise.
template <typename Handle>
CUresult required_to_wire(Session& session, rpc::HandleKind kind, Handle handle, uint64_t* id) {
  const uint64_t value = handle_value(handle);
  if (value == 0 && kind == rpc::HandleKind::kContext) return CUDA_ERROR_INVALID_CONTEXT;
  if (kind == rpc::HandleKind::kFunction && rpc::handle_kind(value) == rpc::HandleKind::kKernel) {
    kind = rpc::HandleKind::kKernel;
  }
  return handle_to_wire(session, kind, reinterpret_cast<const void*>(value), id);
}

// A handle inside a struct: NULL stays NULL.
template <typename Handle>
CUresult optional_to_wire(Session& session, rpc::HandleKind kind, Handle handle, uint64_t* id) {
  *id = 0;
  return handle_value(handle) == 0 ? CUDA_SUCCESS : required_to_wire(session, kind, handle, id);
}

// Makes an object: `message(id)` sends the id that it will have. `parent`: as created() takes it.
template <typename Handle, typename Message>
CUresult make_object(Session& session, rpc::HandleKind kind, Handle* made, Message&& message,
                     uint64_t parent = 0) {
  return without_exception([&]() -> CUresult {
    NewHandle object(session, kind);
    if (object.id() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult result = message(object.id()); result != CUDA_SUCCESS) return result;
    object.created(parent);
    *made = handle_from<Handle>(object.id());
    return CUDA_SUCCESS;
  });
}

// Ids for objects that the worker may name in its answer: those that it knows by other ids already
// keep them. Ids that it does not use are free again.
class NewHandles {
 public:
  NewHandles(Session& session, rpc::HandleKind kind, size_t count)
      : session_(session), kind_(kind), ids_(count), count_(count) {
    for (uint64_t& id : ids_) id = new_id(session, kind);
  }
  ~NewHandles() {
    for (const uint64_t id : ids_) give_id_back(session_, id);
  }
  NewHandles(const NewHandles&) = delete;
  NewHandles& operator=(const NewHandles&) = delete;

  // False: the program has as many objects as there may be.
  bool complete() { return std::find(ids_.begin(), ids_.end(), uint64_t{0}) == ids_.end(); }
  const uint64_t* data() { return ids_.data(); }
  // The first `have` objects of the answer, which are `parent`'s, as handles. False: the worker
  // names what is neither one of these ids nor a live object.
  template <typename Handle>
  bool take(const uint64_t* answer, uint64_t have, uint64_t parent, Handle* to) {
    if (have > count_) return false;
    for (size_t i = 0; i < have; ++i) {
      const uint64_t id = answer[i];
      uint64_t* const ours = std::find(ids_.begin(), ids_.end(), id);
      if (id != 0 && ours != ids_.end()) {
        *ours = 0;
        id_is_made(session_, id, parent);
      } else if (!is_live(session_, kind_, id)) {
        return false;
      }
      to[i] = handle_from<Handle>(id);
    }
    return true;
  }

 private:
  Session& session_;
  const rpc::HandleKind kind_;
  schema::SmallBuffer<uint64_t> ids_;  // 0: used
  const size_t count_;
};

// Device ordinals inside memory locations: the application's to the worker's and back.
inline CUresult location_to_wire(Session& session, CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  int32_t ordinal = 0;
  const CUresult result = device_to_wire(session, location->id, &ordinal);
  if (result == CUDA_SUCCESS) location->id = ordinal;
  return result;
}
inline void location_from_wire(Session& session, CUmemLocation* location) {
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    location->id = device_from_wire(session, location->id);
}

}  // namespace fargpu::client
