// Common steps of every message: used by generated code, and where a message is made by hand. No
// exception leaves guarded().
#pragma once

#include <capnp/message.h>
#include <cuda.h>
#include <kj/exception.h>

#include <cstring>
#include <span>
#include <string>

#include "client/link/input.h"
#include "client/link/link.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
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

// Runs `body` (CUresult()); exceptions of Cap'n Proto and the standard library become a status.
template <typename Body>
[[gnu::always_inline]] inline CUresult guarded(const char* name, Body&& body) noexcept {
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
