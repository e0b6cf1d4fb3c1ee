#include "sim/base/call_gate.h"

#include <atomic>
#include <cstddef>
#include <thread>

namespace fargpu::sim {
namespace {

// The order of both atomics is what keeps a call and a closing gate from missing each other.
std::atomic<bool> closed{false};
std::atomic<size_t> inside{0};
thread_local size_t depth = 0;

}  // namespace

CallGate::Pass::Pass() {
  if (depth++ > 0) return;
  for (;;) {
    inside.fetch_add(1);
    if (!closed.load()) return;
    inside.fetch_sub(1);
    closed.wait(true);
  }
}

CallGate::Pass::~Pass() {
  if (--depth == 0) inside.fetch_sub(1);
}

bool CallGate::close(std::optional<Clock::time_point> deadline) {
  constexpr auto kPause = std::chrono::microseconds(100);
  closed.store(true);
  while (inside.load() > 0) {
    if (deadline && Clock::now() >= *deadline) {
      open();
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

void CallGate::open() {
  closed.store(false);
  closed.notify_all();
}

}  // namespace fargpu::sim
