// Managed memory on its way: where its device memory comes from, how its contents travel, and what
// takes it from this process (client/managed/managed_memory.h).
//
// In the worker it is memory of cuMemCreate, mapped at the addresses that this process has chosen
// and accessible to all GPUs of the session. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>

#include "client/managed/managed_memory.h"
#include "client/managed/managed_variables.h"
#include "client/process/session.h"
#include "client/transfer/endpoint.h"

namespace fargpu::client {

struct Context;

// `bytes` > 0. CUDA_ERROR_OUT_OF_MEMORY: here, on the device, or of addresses.
CUresult allocate_managed(Context& context, uint64_t bytes, ManagedMemory::Attachment attachment,
                          CUdeviceptr* address);
// Waits for the device. CUDA_ERROR_INVALID_VALUE: no managed memory begins there.
CUresult free_managed(Session& session, uint64_t address);
// A variable that the server's driver keeps in managed memory, and `function` has found, is the
// application's, too, as long as its owner lives. CUDA_ERROR_NOT_SUPPORTED, with a line in the log:
// its addresses are not free here.
CUresult add_managed_variable(Session& session, const char* function,
                              const ManagedVariables::Variable& variable);
// Runs unload(), which ends the module or library `owner` in the worker. Its variables end before,
// and come back when that fails.
CUresult unload_with_variables(Session& session, uint64_t owner,
                               const std::function<CUresult()>& unload);
// A context is about to end; so do the variables of its modules, but not those of libraries.
void end_variables_of(const Context& context);
// A context is about to end, and what was allocated in it ends, too.
void free_managed_of(Context& context);

// Around a copy that uses these ends by their addresses: managed memory at one of them is the
// device's from now on.
class ManagedUse {
 public:
  ManagedUse(Session& session, CUstream stream, const Endpoint& dst, const Endpoint& src);
  ~ManagedUse();
  ManagedUse(const ManagedUse&) = delete;
  ManagedUse& operator=(const ManagedUse&) = delete;
  CUresult result() const { return result_; }

 private:
  Session* session_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

// After a copy was submitted. While managed memory is not attached globally, the application's
// access waits for nothing: so the copy is awaited.
CUresult await_attached(Session& session, CUstream stream, const Endpoint& dst,
                        const Endpoint& src);  // where there is managed memory
inline CUresult await_managed(Session& session, CUstream stream, const Endpoint& dst,
                              const Endpoint& src) {
  return session.observers.any(Observers::kManagedMemory)
             ? await_attached(session, stream, dst, src)
             : CUDA_SUCCESS;
}

}  // namespace fargpu::client
