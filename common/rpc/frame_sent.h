// What a thread does when the frame of its next call is in the channel, so that frames of other
// threads come behind it, and before it waits for the reply. Over any channel. Costs other threads
// a look at a flag of their own in each call that waits.
#pragma once

#include <atomic>

namespace fargpu::rpc {

class FrameSent {
 public:
  using Then = void (*)(void*);

  // Calls then(of) once, on this thread. Nothing may be expected yet: else neither is called.
  static void expect(Then then, void* of) {
    if (of_ != nullptr) return forget();
    threads.fetch_add(1, std::memory_order_relaxed);
    then_ = then;
    of_ = of;
  }
  static void forget() {
    if (of_ == nullptr) return;
    threads.fetch_sub(1, std::memory_order_relaxed);
    of_ = nullptr;
  }
  // One load while no thread expects it.
  static void tell() {
    if (threads.load(std::memory_order_relaxed) == 0 || of_ == nullptr) [[likely]]
      return;
    void* const of = of_;
    forget();
    then_(of);
  }

 private:
  static inline constinit std::atomic<int> threads{0};
  static inline constinit thread_local Then then_{nullptr};
  static inline constinit thread_local void* of_{nullptr};
};

}  // namespace fargpu::rpc
