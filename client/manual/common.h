// What all hand-written halves need: where the call happens, and the steps that many calls share.
//
// The manual_cuX functions run below a CallScope that has checked `needs` of the description.
// `needs: context` means that a usable context is current. They may be called from any thread.
#pragma once

#include <cuda.h>

#include <functional>

#include "client/entry/call_target.h"
#include "client/image/records.h"
#include "client/process/process.h"
#include "client/transfer/coherence.h"
#include "generated/client/manual.h"

namespace fargpu::client {

// A variable of module or library `owner` that `name` has asked for; CUDA_ERROR_OUT_OF_MEMORY when
// another server has memory at its address (apart.h).
CUresult remember_global(Session& session, const char* name, CUdeviceptr address, size_t bytes,
                         uint64_t owner);

// Runs work(here), which puts something into the stream for device memory at `address`, or for host
// memory there and device memory at `other`.
//
// A default stream is that of the current context. If the memory is of another server, the work
// waits for what is in that stream, is done in the default stream of the memory's context, and is
// over when this returns. A copy between memory of the current context's server and another one is
// left to the current context. Costs a load while there is one session.
CUresult in_default_stream(CUstream stream, CUdeviceptr address, CUdeviceptr other,
                           const std::function<CUresult(const CallTarget&)>& work);
// The same for an array.
CUresult in_default_stream(CUstream stream, CUarray array,
                           const std::function<CUresult(const CallTarget&)>& work);
template <typename Work>
CUresult at_memory(CUstream stream, CUdeviceptr address, CUdeviceptr other, Work&& work) {
  if (is_default_stream(stream) && Process::get().session(1) != nullptr) [[unlikely]]
    return in_default_stream(stream, address, other, std::ref(work));
  return work(CallTarget::of(stream));
}

// Answers about functions, alike for CUfunction and CUkernel.
CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* size);
void attribute_was_set(Function& function, int device, CUfunction_attribute attribute, int value);

}  // namespace fargpu::client
