// The calling thread's stack of current contexts, and whether it is executing a host function of a
// stream.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace fargpu::sim {

// Handles only: a context may be destroyed while it is current somewhere.
std::vector<CUcontext>& context_stack();

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
