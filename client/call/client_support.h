// Used by generated client code only: checks, translations and the frame around every call_cuX. No
// exception leaves guarded().
#pragma once

#include <capnp/message.h>
#include <cuda.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "client/call/call.h"
#include "client/call/input.h"
#include "client/call/submission.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/handle_kind.h"
#include "common/wire/data.h"
#include "common/wire/fixed_message.h"
#include "schema/support/sizes.h"
#include "schema/support/small_buffer.h"

namespace fargpu::client {

// For the lengths in the description.
using schema::mem_pool_attribute_bytes;
using schema::pointer_attribute_bytes;

// The answer of the server does not have the promised form.
inline CUresult malformed(const char* name) {
  return from_status(
      Status(StatusCode::kProtocol, std::string(name) + ": the reply has the wrong form"));
}

// Runs `body` (CUresult()); what Cap'n Proto or the standard library throws becomes a status.
template <typename Body>
CUresult guarded(const char* name, Body&& body) noexcept {
  try {
    return body();
  } catch (const kj::Exception& error) {
    return from_status(
        Status(StatusCode::kProtocol, std::string(name) + ": " + error.getDescription().cStr()));
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return from_status(Status(StatusCode::kSystem, std::string(name) + ": " + error.what()));
  }
}

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
  size_t bytes() const { return ids_.bytes(); }
  // The first `have` objects of the answer, which are `parent`'s, as handles. False: the worker
  // names what is neither one of these ids nor a live object.
  template <typename Handle>
  bool take(capnp::Data::Reader answer, uint64_t have, uint64_t parent, Handle* to) {
    if (have > count_ || answer.size() != have * sizeof(uint64_t)) return false;
    for (size_t i = 0; i < have; ++i) {
      uint64_t id = 0;
      std::memcpy(&id, answer.begin() + i * sizeof id, sizeof id);
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

// Data fields: raw bytes in, and out with an exact length.
using wire::as_data;
inline bool take_data(capnp::Data::Reader data, void* to, size_t size) {
  if (data.size() != size) return false;
  if (size > 0 && to != nullptr) std::memcpy(to, data.begin(), size);
  return true;
}
// Copies text like snprintf: cut to `size` bytes, terminated.
inline void take_text(capnp::Text::Reader text, char* to, size_t size) {
  if (to == nullptr || size == 0) return;
  const size_t bytes = text.size() < size - 1 ? text.size() : size - 1;
  std::memcpy(to, text.begin(), bytes);
  to[bytes] = '\0';
}

// The stuff behind Status and result of an async call.
inline CUresult sent(const Status& status, int32_t result) {
  return status.ok() ? static_cast<CUresult>(result) : from_status(status);
}

}  // namespace fargpu::client
