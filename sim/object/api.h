// The common beginning of every entry point of the library. The target defines what makes cuda.h
// declare all functions, old ABIs and per-thread variants too, with default visibility, so that a
// definition needs no more than its name.
#pragma once

#include <cuda.h>

#include <memory>
#include <new>
#include <stdexcept>

#include "sim/base/call_gate.h"
#include "sim/context/context.h"
#include "sim/context/current.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {

// Logs the exception of an entry point.
CUresult unexpected(const std::exception& error);

// No exception leaves an entry point.
template <typename Body>
CUresult guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return unexpected(error);
  }
}

// For calls that need cuInit: body(Driver&).
template <typename Body>
CUresult with_driver(Body&& body) noexcept {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CallGate::Pass pass;
  return guarded([&] { return body(Driver::get()); });
}

// For calls about a device: body(Device&).
template <typename Body>
CUresult with_device(CUdevice ordinal, Body&& body) noexcept {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(ordinal);
    return device ? body(*device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

// As current_context(). A thread without a context, or with one that is gone, works in that of
// `handle`, an object of a context.
CUresult context_for(const void* handle, std::shared_ptr<Context>* context);

// For calls that need a current context; a failed context returns its error: body(Context&).
template <typename Body>
CUresult with_context_of(const void* handle, Body&& body) noexcept {
  return with_driver([&](Driver&) -> CUresult {
    std::shared_ptr<Context> context;
    if (CUresult result = context_for(handle, &context); result != CUDA_SUCCESS) return result;
    if (CUresult result = context->error(); result != CUDA_SUCCESS) return result;
    return body(*context);
  });
}
template <typename Body>
CUresult with_context(Body&& body) noexcept {
  return with_context_of(nullptr, std::forward<Body>(body));
}

// For calls that put work into a stream: body(Context& of the stream, const
// std::shared_ptr<Stream>&).
template <typename Body>
CUresult with_stream(CUstream handle, Body&& body) noexcept {
  return with_context_of(handle, [&](Context& current) -> CUresult {
    std::shared_ptr<Context> owner;
    std::shared_ptr<Stream> stream;
    if (CUresult result = find_stream(current.shared_from_this(), handle, &owner, &stream);
        result != CUDA_SUCCESS) {
      return result;
    }
    if (CUresult result = owner->error(); result != CUDA_SUCCESS) return result;
    return body(*owner, stream);
  });
}

// A description of memory that belongs to a context; the caller fills in the rest.
Allocation owned_by(Context& context);
// Waits for work that may still use an allocation: the work of the context and of its device's
// primary context.
void quiesce(Context& context, const Allocation& allocation);

// Handle <-> number, for objects in the registry.
template <typename Handle>
Handle to_handle(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

}  // namespace fargpu::sim
