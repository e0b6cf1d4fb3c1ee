// The calling thread's stack of current contexts, and whether it is executing a host function of a
// stream.
#pragma once

#include <cuda.h>

#include <vector>

namespace fargpu::sim {

// Handles only: a context may be destroyed while it is current somewhere.
std::vector<CUcontext>& context_stack();

// Calls into the driver from a host function are refused; true while this thread runs one.
bool& inside_host_function();

// While one of these lives, this thread runs a host function.
class HostFunctionScope {
 public:
  HostFunctionScope() { inside_host_function() = true; }
  ~HostFunctionScope() { inside_host_function() = false; }
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

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
