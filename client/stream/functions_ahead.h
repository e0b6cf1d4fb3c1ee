// FunctionsAhead: which host functions may come before work that is put somewhere. Ids of HostCalls
// rise, so the last one says it: work never comes before an earlier function of those it follows.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu::client {

class FunctionsAhead {
 public:
  // All there are.
  static constexpr uint64_t kAll = UINT64_MAX;

  uint64_t last() const { return last_.load(std::memory_order_acquire); }
  // Behind those up to `id`, too.
  void follow(uint64_t id) {
    uint64_t known = last();
    while (known < id && !last_.compare_exchange_weak(known, id, std::memory_order_acq_rel)) {
    }
  }
  // Behind those alone.
  void set(uint64_t id) { last_.store(id, std::memory_order_release); }

 private:
  std::atomic<uint64_t> last_{0};
};

}  // namespace fargpu::client
