#include "sim/context/current.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "common/base/late_thread_local.h"
#include "sim/context/context.h"
#include "sim/context/green_context.h"
#include "sim/context/primary_context.h"
#include "sim/driver/driver.h"

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

uint64_t this_thread_number() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

std::vector<CUcontext>& context_stack() { return LateThreadLocal<ContextStack>::get().contexts; }

std::shared_ptr<Context> find_context(CUcontext handle) {
  const Registry& registry = Driver::get().registry();
  if (auto context = registry.find<Context>(handle)) return context;
  if (auto primary = registry.find<PrimaryContext>(handle)) return primary->get();
  if (auto green = registry.find<GreenContext>(handle); green && green->alive)
    return green->primary;
  return nullptr;
}

bool is_context(CUcontext handle) {
  const Registry& registry = Driver::get().registry();
  return registry.find<Context>(handle) != nullptr ||
         registry.find<PrimaryContext>(handle) != nullptr ||
         registry.find<GreenContext>(handle) != nullptr;
}

CUresult current_context(std::shared_ptr<Context>* context) {
  const auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find_context(stack.back());
  return *context && (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::shared_ptr<GreenContext> current_green() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : Driver::get().registry().find<GreenContext>(stack.back());
}

CUresult find_stream(const std::shared_ptr<Context>& current, CUstream handle,
                     std::shared_ptr<Context>* owner, std::shared_ptr<Stream>* stream) {
  *owner = current;
  if (handle == nullptr && PerThreadDefault::active()) handle = CU_STREAM_PER_THREAD;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    const auto green = current_green();
    *stream = green ? green->default_stream : current->legacy_stream();
  } else if (handle == CU_STREAM_PER_THREAD) {
    if (current_green()) return CUDA_ERROR_INVALID_HANDLE;
    *stream = current->per_thread_stream();
  } else {
    *stream = Driver::get().registry().find<Stream>(handle);
    if (!*stream) return CUDA_ERROR_INVALID_HANDLE;
    *owner = (*stream)->context.lock();
    if (!*owner || !(*owner)->alive()) return CUDA_ERROR_INVALID_HANDLE;
    if ((*stream)->green && !(*stream)->green->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

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

bool& inside_host_function() {
  thread_local bool inside = false;
  return inside;
}

bool& PerThreadDefault::active() {
  thread_local bool active = false;
  return active;
}

}  // namespace fargpu::sim
