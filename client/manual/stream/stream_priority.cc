#include "client/manual/stream/stream_priority.h"

#include <atomic>
#include <map>
#include <mutex>

namespace fargpu::client {
namespace {

struct Priorities {
  std::mutex mutex;
  std::map<CUstream, int> known;  // none of 0
  std::atomic<bool> any{false};   // whether there has been one: else nothing takes the mutex
};

// Calls come until the very end of the process.
Priorities& priorities() {
  static auto& all = *new Priorities;
  return all;
}

}  // namespace

void note_priority(CUstream stream, int priority) {
  Priorities& all = priorities();
  if (priority == 0 && !all.any.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(all.mutex);
  all.any.store(true, std::memory_order_relaxed);
  if (priority == 0)
    all.known.erase(stream);
  else
    all.known[stream] = priority;
}

int priority_of(CUstream stream) {
  Priorities& all = priorities();
  if (!all.any.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(all.mutex);
  const auto found = all.known.find(stream);
  return found == all.known.end() ? 0 : found->second;
}

}  // namespace fargpu::client
