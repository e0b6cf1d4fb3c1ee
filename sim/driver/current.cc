#include "sim/driver/current.h"

#include <condition_variable>
#include <mutex>
#include <set>

#include "common/base/late_thread_local.h"

namespace fargpu::sim {
namespace {

struct ContextStack {
  std::vector<CUcontext> contexts;
};

struct HostFunctions {
  std::mutex mutex;
  std::condition_variable ended;
  uint64_t begun = 0;          // guarded by mutex
  std::set<uint64_t> running;  // guarded by mutex
};
// Never destroyed: threads of streams may outlive static objects.
HostFunctions& host_functions() {
  static auto& made = *new HostFunctions;
  return made;
}

}  // namespace

HostFunctionScope::HostFunctionScope() {
  HostFunctions& all = host_functions();
  std::lock_guard lock(all.mutex);
  number_ = ++all.begun;
  all.running.insert(number_);
  inside_host_function() = true;
}

HostFunctionScope::~HostFunctionScope() {
  inside_host_function() = false;
  HostFunctions& all = host_functions();
  {
    std::lock_guard lock(all.mutex);
    all.running.erase(number_);
  }
  all.ended.notify_all();
}

void wait_for_host_functions() {
  HostFunctions& all = host_functions();
  std::unique_lock lock(all.mutex);
  const uint64_t last = all.begun;
  all.ended.wait(lock, [&] { return all.running.empty() || *all.running.begin() > last; });
}

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
