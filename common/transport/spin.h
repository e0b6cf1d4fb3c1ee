// How long a waiting end spins before it sleeps. Both ends read FARGPU_SPIN, each for itself.
//
// Waking a thread costs 15 to 100 us, more than most calls take. A client spins only while a call
// of the application waits; natively the driver spins there as well. A worker spins for a moment
// after each frame, since the next one is usually near. Neither spins while a session is idle.
#pragma once

#include <chrono>

#include "common/base/status.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

enum class SpinningEnd { kClient, kWorker };

// 2 ms for a client and 200 us for a worker where there are cores to spare, else 0: spinning could
// take the core away from the very thread that it waits for.
std::chrono::microseconds usual_spin(SpinningEnd end);
// FARGPU_SPIN ("20us", "0"), or the usual time when it is not set. kInvalidArgument: not a time.
Result<std::chrono::microseconds> spin_from_environment(SpinningEnd end);

// One round of a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The spinning of one wait. For a moment the thread keeps its processor; after that it lets others
// have it between its looks. Where one took it, there are more threads than processors: the wait
// looks once more and spins no longer, and the thread's next ones do not keep the processor either.
// Otherwise spinning threads would keep the processor from the thread that they wait for until
// their time slices end, which takes milliseconds.
class Spin {
 public:
  // Without time, or with a deadline that has passed, it is over at once.
  Spin(Clock::duration most, Deadline deadline) {
    const auto now = Clock::now();
    until_ = most < deadline - now ? now + most : deadline;
    alone_until_ = now < crowded_until ? now : now + kAlone;
    over_ = now >= until_;
  }

  // Called between two looks. False: the time is over.
  bool go_on() {
    if (over_ || put_off_) return false;
    relax();
    return ++looks_ % kLooksPerClock != 0 || go_on(Clock::now());
  }
  // The same for one that reads the clock itself, now and then.
  bool go_on(Clock::time_point now) {
    over_ = over_ || put_off_ || now >= until_;
    if (!over_ && now >= alone_until_) let_others(now);
    return !over_;
  }

 private:
  static constexpr unsigned kLooksPerClock = 16;  // the clock costs more than a look
  static constexpr auto kAlone = std::chrono::microseconds(20);
  // A yield without another runnable thread returns after less than 1 us, or later if there is an
  // interrupt.
  static constexpr auto kLate = std::chrono::microseconds(4);
  static constexpr auto kCrowded = std::chrono::milliseconds(10);
  static constinit thread_local Clock::time_point crowded_until;

  void let_others(Clock::time_point now);

  Deadline until_, alone_until_;
  unsigned looks_ = 0;
  long switches_ = -1;  // of this thread, at its first yield
  bool over_, put_off_ = false;
};

}  // namespace fargpu::transport
