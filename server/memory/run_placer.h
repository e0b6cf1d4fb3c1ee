// RunPlacer: a thread that puts runs of bytes in place while the executor receives the next ones.
// The executor's thread alone adds and waits. The thread starts with the first runs and takes no
// signals; where none can be started, add() does the work.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/host/thread.h"

namespace fargpu::server {

class RunPlacer {
 public:
  struct Push {
    std::span<const std::byte> runs;
    bool gaps = false;  // bytes as both ends agreed before stay as they are
  };
  using Place = std::function<void(const Push&)>;
  // So many may be under way: what was added before the last kMost is in place.
  static constexpr uint64_t kMost = 2;

  // `place` is called in the order of add(), and must not throw.
  explicit RunPlacer(Place place) : place_(std::move(place)) {}
  ~RunPlacer();
  RunPlacer(const RunPlacer&) = delete;
  RunPlacer& operator=(const RunPlacer&) = delete;

  // The bytes stay where they are while they are under way.
  void add(const Push& push);
  bool any() const { return placed_.load(std::memory_order_acquire) != added_; }
  void wait() { wait_for(added_); }

 private:
  void wait_for(uint64_t number);
  void serve();

  const Place place_;
  Thread thread_;
  std::array<Push, kMost> pushes_;               // by number
  uint64_t added_ = 0;                           // the executor's
  std::atomic<uint64_t> ready_{0}, placed_{0};   // numbers
  static constexpr uint64_t kStop = UINT64_MAX;  // of ready_
};

}  // namespace fargpu::server
