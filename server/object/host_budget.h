// HostBudget: the host memory that one session may have for bytes of the client: memory that it
// shares, mirrors, staging. Taken before memory is touched. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace fargpu::server {

class HostBudget {
 public:
  // Half of this host's memory, or of what the process's cgroup may have.
  static uint64_t usual_limit();

  // 0: the usual limit.
  explicit HostBudget(uint64_t limit = 0) : limit_(limit != 0 ? limit : usual_limit()) {}
  HostBudget(const HostBudget&) = delete;
  HostBudget& operator=(const HostBudget&) = delete;

  // False: over the limit, and nothing is taken.
  bool take(uint64_t bytes) {
    uint64_t used = used_.load(std::memory_order_relaxed);
    while (bytes <= limit_ && used <= limit_ - bytes) {
      if (used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) return true;
    }
    refuse(bytes);
    return false;
  }
  void give_back(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  // Logs the first refusal.
  void refuse(uint64_t bytes);

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
  std::atomic<bool> refused_{false};
};

using HostBudgetPointer = std::shared_ptr<HostBudget>;

}  // namespace fargpu::server
