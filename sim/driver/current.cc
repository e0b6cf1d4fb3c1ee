#include "sim/driver/current.h"

#include "common/base/late_thread_local.h"

namespace fargpu::sim {
namespace {

struct ContextStack {
  std::vector<CUcontext> contexts;
};

}  // namespace

std::vector<CUcontext>& context_stack() { return LateThreadLocal<ContextStack>::get().contexts; }

bool& inside_host_function() {
  thread_local bool inside = false;
  return inside;
}

bool& PerThreadDefault::active() {
  thread_local bool active = false;
  return active;
}

}  // namespace fargpu::sim
