// An event: a place in a stream that can be waited for and dated.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "sim/base/completion.h"
#include "sim/base/registry.h"
#include "sim/context/capture.h"
#include "sim/driver/interprocess.h"

namespace fargpu::sim {

class Context;

// One recording. `nanoseconds` is written by the stream before `fence` completes.
struct EventRecord {
  Fence fence;
  int64_t nanoseconds = 0;
};

inline int64_t event_time() {  // in nanoseconds
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Event {
  static constexpr ObjectKind kKind = ObjectKind::kEvent;

  Event(std::weak_ptr<Context> context, unsigned flags)
      : context(std::move(context)), flags(flags) {}

  // Where it was recorded last, if that was in a captured stream.
  std::shared_ptr<CapturedPlace> place() {
    std::lock_guard lock(mutex);
    return captured;
  }
  std::shared_ptr<EventRecord> latest() {
    std::lock_guard lock(mutex);
    return record;
  }

  // A record begins, which `done` ends: the task to run when the stream has reached it. For
  // Context::submit_made(): of two threads that record at once, the later in the stream is the
  // latest of the event.
  std::function<void()> begin_record(const Fence& done) {
    auto begun = std::make_shared<EventRecord>();
    begun->fence = done;
    const std::lock_guard lock(mutex);
    record = begun;
    captured = nullptr;
    return [begun, shared = shared, number = shared ? shared->begin_record() : 0] {
      begun->nanoseconds = event_time();
      if (shared) shared->reached(number);
    };
  }

  const std::weak_ptr<Context> context;
  const unsigned flags;
  // For an interprocess event, set before it is published; then it counts, not `record`.
  std::shared_ptr<SharedEvent> shared;
  bool opened = false;  // of another process
  std::mutex mutex;
  std::shared_ptr<EventRecord> record;      // guarded by mutex; nullptr: never recorded
  std::shared_ptr<CapturedPlace> captured;  // guarded by mutex; then `record` does not count
};

}  // namespace fargpu::sim
