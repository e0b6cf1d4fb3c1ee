// Managed memory on its way: where its device memory comes from, how its contents travel, and what
// takes it from this process (client/managed/managed_memory.h).
//
// In the worker it is memory of cuMemCreate, mapped at the addresses that this process has chosen
// and accessible to all GPUs of the session. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/managed/managed_memory.h"
#include "client/transfer/endpoint.h"

namespace fargpu::client {

struct Context;
class Session;

// `bytes` > 0. CUDA_ERROR_OUT_OF_MEMORY: here, on the device, or of addresses.
CUresult allocate_managed(Context& context, uint64_t bytes, ManagedMemory::Attachment attachment,
                          CUdeviceptr* address);
// Waits for the device. CUDA_ERROR_INVALID_VALUE: no managed memory begins there.
CUresult free_managed(Session& session, uint64_t address);
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
CUresult await_managed(Session& session, CUstream stream, const Endpoint& dst, const Endpoint& src);

}  // namespace fargpu::client
