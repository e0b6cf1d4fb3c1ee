// While it lives, the asynchronous calls of this thread wait for their answer, over any channel, as
// with ChannelOptions::sync_all: their errors are their own. May be nested. Costs other threads a
// look at a flag of their own in each asynchronous call.
#pragma once

#include <atomic>

namespace fargpu::rpc {

class AnswersAwaited {
 public:
  AnswersAwaited() {
    threads.fetch_add(1, std::memory_order_relaxed);
    ++depth;
  }
  ~AnswersAwaited() {
    --depth;
    threads.fetch_sub(1, std::memory_order_relaxed);
  }
  AnswersAwaited(const AnswersAwaited&) = delete;
  AnswersAwaited& operator=(const AnswersAwaited&) = delete;

  // Whether the calls of this thread wait. One load while no thread's do.
  static bool here() { return threads.load(std::memory_order_relaxed) != 0 && depth != 0; }

 private:
  static inline constinit std::atomic<int> threads{0};
  static inline constinit thread_local int depth{0};
};

}  // namespace fargpu::rpc
