#include "sim/driver/current.h"

namespace fargpu::sim {

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

bool& inside_host_function() {
  thread_local bool inside = false;
  return inside;
}

bool& PerThreadDefault::active() {
  thread_local bool active = false;
  return active;
}

}  // namespace fargpu::sim
