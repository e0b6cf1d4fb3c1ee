#include "common/transport/spin.h"

#include <sched.h>
#include <sys/resource.h>

#include <thread>
#include <utility>

#include "common/base/env.h"

namespace fargpu::transport {

namespace {

// How often this thread has had to give its processor to another one, or gave it.
long switches() {
  rusage use{};
  ::getrusage(RUSAGE_THREAD, &use);
  return use.ru_nvcsw + use.ru_nivcsw;
}

}  // namespace

std::chrono::microseconds usual_spin(SpinningEnd end) {
  if (std::thread::hardware_concurrency() < 4) return std::chrono::microseconds(0);
  return std::chrono::microseconds(end == SpinningEnd::kClient ? 2000 : 200);
}

Result<std::chrono::microseconds> spin_from_environment(SpinningEnd end) {
  return env_duration("FARGPU_SPIN", usual_spin(end));
}

constinit thread_local Clock::time_point Spin::crowded_until{};

// The system is asked only where the clock says that something has happened.
void Spin::let_others(Clock::time_point now) {
  if (switches_ < 0) {
    switches_ = switches();
    now = Clock::now();
  }
  ::sched_yield();
  const auto back = Clock::now();
  if (back - now < kLate) return;
  const long before = std::exchange(switches_, switches());
  if (switches_ == before) return;
  crowded_until = back + kCrowded;
  put_off_ = true;
}

}  // namespace fargpu::transport
