// Sets of events. A server passes no events on, so a set is a number that can be waited for; a wait
// sleeps here without a request to the server.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "client/nvml/manual/common.h"

namespace fargpu::nvml {
namespace {

struct Sets {
  std::mutex mutex;
  std::set<uint64_t> all;
  uint64_t next = 1;
};

Sets& sets() {
  static Sets* const made = [] {
    // A child of fork() must not find the mutex locked by a thread that it does not have.
    pthread_atfork([] { sets().mutex.lock(); }, [] { sets().mutex.unlock(); },
                   [] { sets().mutex.unlock(); });
    return new Sets;
  }();
  return *made;
}

bool exists(nvmlEventSet_t set) {
  Sets& known = sets();
  const std::lock_guard lock(known.mutex);
  return known.all.contains(reinterpret_cast<uint64_t>(set));
}

nvmlReturn_t wait(nvmlEventSet_t set, const void* data, unsigned int milliseconds) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSlice = std::chrono::milliseconds(100);
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (true) {
    const nvmlReturn_t state = with_library([&](Library& library) {
      if (data == nullptr || !exists(set)) return NVML_ERROR_INVALID_ARGUMENT;
      return library.lost() ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    });
    if (state != NVML_SUCCESS) return state;
    const auto now = Clock::now();
    if (now >= until) return NVML_ERROR_TIMEOUT;
    std::this_thread::sleep_for(std::min<Clock::duration>(kSlice, until - now));
  }
}

}  // namespace

nvmlReturn_t manual_nvmlEventSetCreate(nvmlEventSet_t* set) {
  return with_library([&](Library&) {
    if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    Sets& known = sets();
    const std::lock_guard lock(known.mutex);
    known.all.insert(known.next);
    *set = reinterpret_cast<nvmlEventSet_t>(known.next++);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t manual_nvmlEventSetFree(nvmlEventSet_t set) {
  return with_library([&](Library&) {
    Sets& known = sets();
    const std::lock_guard lock(known.mutex);
    return known.all.erase(reinterpret_cast<uint64_t>(set)) != 0 ? NVML_SUCCESS
                                                                 : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t manual_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data,
                                        unsigned int timeoutms) {
  return wait(set, data, timeoutms);
}

nvmlReturn_t manual_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data,
                                     unsigned int timeoutms) {
  return wait(set, data, timeoutms);
}

nvmlReturn_t manual_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                             nvmlEventSet_t set) {
  unsigned long long supported = 0;
  const nvmlReturn_t result = call_nvmlDeviceGetSupportedEventTypes(device, &supported);
  if (result != NVML_SUCCESS) return result;
  if (!exists(set)) return NVML_ERROR_INVALID_ARGUMENT;
  return (eventTypes & ~supported) != 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

}  // namespace fargpu::nvml
