// What messages have instead of the application's arguments: ids for handles, the worker's ordinals
// for devices. Used by generated code, and where a message is made or sent by hand.
#pragma once

#include <cuda.h>

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
