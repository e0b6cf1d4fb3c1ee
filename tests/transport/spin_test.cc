// Spin: when the spinning of a wait is over, alone on a processor and beside one that wants it.
#include "common/transport/spin.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace fargpu::transport {
namespace {

using namespace std::chrono_literals;
constexpr auto kLong = 60s;  // far more than it takes

// A processor that this thread may use.
int some_processor() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &allowed)) return processor;
  }
  return 0;
}

void stay_on(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

void use_up(Spin& spin) {
  while (spin.go_on()) {
  }
}

TEST(SpinTest, WithoutTimeItIsOverAtOnce) {
  EXPECT_FALSE(Spin(0s, kNoDeadline).go_on());
  EXPECT_FALSE(Spin(kLong, Clock::now()).go_on());
  EXPECT_FALSE(Spin(kLong, Clock::now() - 1s).go_on());
}

TEST(SpinTest, GoesOnUntilItsTimeOrItsDeadlineHasPassed) {
  const auto begin = Clock::now();
  Spin timed(kLong, kNoDeadline);
  EXPECT_TRUE(timed.go_on(begin));
  EXPECT_FALSE(timed.go_on(begin + kLong + 1s));
  EXPECT_FALSE(timed.go_on(begin)) << "what is over stays over";
  Spin limited(kLong, begin + 30s);
  EXPECT_TRUE(limited.go_on(begin));
  EXPECT_FALSE(limited.go_on(begin + 30s));
}

// In a thread of its own, which no other test has been put off in.
TEST(SpinTest, EndsWhereAnotherThreadTakesTheProcessor) {
  std::atomic<bool> stop{false}, runs{false};
  const int processor = some_processor();
  std::thread other([&] {
    stay_on(processor);
    runs = true;
    while (!stop) {
    }
  });
  std::thread spinning([&] {
    while (!runs) std::this_thread::yield();
    stay_on(processor);
    const auto begin = Clock::now();
    for (int wait = 0; wait < 3; ++wait) {
      Spin spin(kLong, kNoDeadline);
      use_up(spin);
    }
    EXPECT_LT(Clock::now() - begin, kLong);
  });
  spinning.join();
  stop = true;
  other.join();
}

}  // namespace
}  // namespace fargpu::transport
