// Common functions of all hand-written halves: where the call happens, and the steps that many
// calls share.
//
// The manual_cuX functions run below a CallScope that has checked `needs` of the description.
// `needs: context` means that a usable context is current. They may be called from any thread.
#pragma once

#include <cuda.h>

#include <functional>

#include "client/entry/call_target.h"
#include "client/object/image_records.h"
#include "client/process/process.h"
#include "client/transfer/coherence.h"
#include "generated/client/manual.h"
#include "generated/client/work/calls.h"

namespace fargpu::client {

// The variable `name` of a live module or library, for `function` of the application; it is
// remembered as device memory or managed memory. CUDA_ERROR_OUT_OF_MEMORY: another server has
// memory at its address (apart.h).
CUresult find_variable(const CallTarget& target, const char* function, const Object& image,
                       const char* name, CUdeviceptr* address, size_t* bytes);
// The same for one that is known to be in managed memory. CUDA_ERROR_NOT_SUPPORTED, with a line in
// the log: the host cannot have it.
CUresult remember_managed(Session& session, const char* function, const Object& image,
                          CUdeviceptr address, size_t bytes);

// Runs work(here), which puts something into the stream for device memory at `address`, or for host
// memory there and device memory at `other`.
//
// A default stream is that of the current context. If the memory belongs to another server, the
// work waits for the present work of that stream, runs in the default stream of the memory's
// context, and has ended when this returns. A copy between memory of the current context's server
// and another one is left to the current context. Costs a load while there is one session.
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

// Whether a launch with the attribute may record its event. CUDA_ERROR_INVALID_VALUE,
// CUDA_ERROR_ILLEGAL_STATE or CUDA_ERROR_NOT_SUPPORTED: wrong flags, for instance flags for
// captures without a capture or the reverse; CUDA_ERROR_INVALID_HANDLE: no event;
// CUDA_ERROR_NOT_SUPPORTED: an event with timing.
CUresult check_event_of_launch(const CUlaunchAttribute& attribute, bool is_captured);

// Answers about functions, alike for CUfunction and CUkernel.
CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* size);
// For a kernel or a module's function on the device, or, with a context, for a kernel's function
// there. `send` asks the server; it is left out where the driver is known to have the value.
CUresult set_attribute(Function& function, int device, const Context* of_function,
                       CUfunction_attribute attribute, int value,
                       const std::function<CUresult()>& send);

// The end of a call with `event`: for an interprocess event the call returns after the worker has
// executed it, because the program may then notify other processes.
CUresult flush_interprocess(Session& session, CUevent event, CUresult result);
CUresult flush_interprocess(Session& session, const Event* event, CUresult result);  // null: none

}  // namespace fargpu::client
