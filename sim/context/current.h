// The calling thread: its number, its stack of current contexts, what handles mean to it, and
// whether it is executing a host function of a stream.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace fargpu::sim {

class Context;
struct GreenContext;
struct Stream;

uint64_t this_thread_number();

// Handles only: a context may be destroyed while it is current somewhere.
std::vector<CUcontext>& context_stack();
// A live context by handle, primary ones while retained; for a green one its primary context.
// nullptr otherwise.
std::shared_ptr<Context> find_context(CUcontext handle);
// The handle names a context, perhaps a primary one that is not retained.
bool is_context(CUcontext handle);
// The calling thread's context. CUDA_ERROR_INVALID_CONTEXT without one,
// CUDA_ERROR_CONTEXT_IS_DESTROYED for one that is gone or was never retained.
CUresult current_context(std::shared_ptr<Context>* context);
// The green one among them; null: it is none.
std::shared_ptr<GreenContext> current_green();
// NULL and CU_STREAM_LEGACY are the current context's legacy default stream. `owner` becomes the
// stream's context, which for a created stream may be another than the current one.
// CUDA_ERROR_INVALID_HANDLE: not a stream, or its context is gone.
CUresult find_stream(const std::shared_ptr<Context>& current, CUstream handle,
                     std::shared_ptr<Context>* owner, std::shared_ptr<Stream>* stream);

// Calls into the driver from a host function are refused; true while this thread runs one.
bool& inside_host_function();

// While one of these lives, this thread runs a host function.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;

 private:
  uint64_t number_ = 0;
};

// Waits for the host functions of the process that run now.
void wait_for_host_functions();

// The NULL stream means the per-thread default stream for calls of this thread while one of these
// lives: the _ptsz and _ptds names.
class PerThreadDefault {
 public:
  PerThreadDefault() : before_(active()) { active() = true; }
  ~PerThreadDefault() { active() = before_; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;
  static bool& active();

 private:
  const bool before_;
};

}  // namespace fargpu::sim
