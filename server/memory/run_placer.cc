#include "server/memory/run_placer.h"

#include <system_error>

namespace fargpu::server {

RunPlacer::~RunPlacer() {
  if (!thread_.joinable()) return;
  wait();
  ready_.store(kStop);
  ready_.notify_one();
  thread_.join();
}

void RunPlacer::add(const Push& push) {
  if (!thread_.joinable()) {
    try {
      thread_ = Thread([this] { serve(); });
    } catch (const std::system_error&) {
      place_(push);
      return;
    }
  }
  if (added_ >= kMost) wait_for(added_ + 1 - kMost);
  pushes_[++added_ % kMost] = push;
  ready_.store(added_, std::memory_order_release);
  ready_.notify_one();
}

void RunPlacer::wait_for(uint64_t number) {
  constexpr int kLooks = 2000;  // about a tenth of a millisecond
  uint64_t placed = placed_.load(std::memory_order_acquire);
  for (int looks = 0; placed < number; ++looks) {
    if (looks < kLooks)
      __builtin_ia32_pause();
    else
      placed_.wait(placed, std::memory_order_acquire);
    placed = placed_.load(std::memory_order_acquire);
  }
}

void RunPlacer::serve() {
  for (uint64_t next = 1;; ++next) {
    uint64_t ready = ready_.load(std::memory_order_acquire);
    while (ready < next) {
      ready_.wait(ready, std::memory_order_acquire);
      ready = ready_.load(std::memory_order_acquire);
    }
    if (ready == kStop) return;
    place_(pushes_[next % kMost]);
    placed_.store(next, std::memory_order_release);
    placed_.notify_one();
  }
}

}  // namespace fargpu::server
