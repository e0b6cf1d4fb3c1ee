// For generated dispatch code and server/manual: decoding, handles and the frame around every
// dispatch_cuX. Everything runs on the executor's thread.
#pragma once

#include <capnp/message.h>
#include <cuda.h>
#include <kj/exception.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "common/base/status.h"
#include "common/rpc/responder.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "schema/support/sizes.h"
#include "schema/support/small_buffer.h"
#include "server/object/request.h"
#include "server/object/submission.h"

namespace fargpu::server {

// For the lengths in the description.
using schema::mem_pool_attribute_bytes;
using schema::pointer_attribute_bytes;

// The peer's mistake in a body of `name`: ends its session.
inline Status malformed(const char* name, const char* what) {
  return Status(StatusCode::kProtocol, std::string(name) + ": " + what);
}

// Runs `body` (Status()); a body that Cap'n Proto cannot read becomes kProtocol.
template <typename Body>
Status decoded(const char* name, Body&& body) {
  try {
    return body();
  } catch (const kj::Exception& error) {
    return malformed(name, error.getDescription().cStr());
  }
}

inline Status answer(Worker& worker, const Request& request, CUresult result) {
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) [[unlikely]] {
    // No context: the GPU is one process's at a time, and that of another one is ending.
    const bool may_change =
        result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (may_change && worker.tries_again(request)) return Status();
    worker.before_error();
  }
  return worker.responder().reply(request.header, result);
}

// ids <-> driver handles. CUmemGenericAllocationHandle is an integer, the others are pointers.
template <typename Handle>
CUresult find_handle(Worker& worker, rpc::HandleKind kind, uint64_t id, Handle* handle) {
  void* found = nullptr;
  const CUresult result = worker.find(kind, id, &found);
  if constexpr (std::is_pointer_v<Handle>) {
    *handle = static_cast<Handle>(found);
  } else {
    *handle = reinterpret_cast<Handle>(found);
  }
  return result;
}
template <typename Handle>
void* handle_pointer(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return static_cast<void*>(handle);
  } else {
    return reinterpret_cast<void*>(handle);
  }
}

// An id where a struct has a handle.
template <typename Handle>
uint64_t handle_id(Handle handle) {
  return reinterpret_cast<uint64_t>(handle_pointer(handle));
}

// The client-made id of a created object was refused, with `why`: a table that is full is an
// answer, everything else is the client's mistake.
inline Status refused_id(Worker& worker, const Request& request, const char* name, CUresult why) {
  if (why == CUDA_ERROR_OUT_OF_MEMORY) return answer(worker, request, why);
  return malformed(name, "the id of the created object is in use or of the wrong kind");
}

// Data of exactly sizeof(T) -> T; false for another size.
template <typename T>
bool read_struct(capnp::Data::Reader data, T* value) {
  if (data.size() != sizeof(T)) return false;
  std::memcpy(value, data.begin(), sizeof(T));
  return true;
}
using wire::as_data;

}  // namespace fargpu::server
