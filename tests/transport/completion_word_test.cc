// A completion word between two processes: seen at once, slept for, and harmless when the other
// side lies.
#include "common/rpc/completion_word.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace fargpu::rpc {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kSoon = 60s;  // far more than it takes

class CompletionWordTest : public ::testing::Test {
 protected:
  CompletionWordTest()
      : word_(*static_cast<CompletionWord*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~CompletionWordTest() override { ::munmap(&word_, 4096); }
  CompletionWord& word_;
};

TEST_F(CompletionWordTest, BeginsAtZeroAndGrows) {
  EXPECT_TRUE(reached(word_, 0));
  EXPECT_FALSE(reached(word_, 1));
  publish(word_, 3, 700);
  EXPECT_TRUE(wait_until_reached(word_, 2, 0ns, Clock::now()));
  EXPECT_EQ(word_.result.load(), 700);
  EXPECT_FALSE(wait_until_reached(word_, 4, 1us, Clock::now() + 1ms));
  EXPECT_EQ(word_.sleepers.load(), 0u);
}

TEST_F(CompletionWordTest, WakesASleeperInAnotherProcess) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(wait_until_reached(word_, 5, 0ns, Clock::now() + kSoon) ? 0 : 1);
  while (word_.sleepers.load() == 0) std::this_thread::yield();
  publish(word_, 4, 0);  // not enough: it must go on sleeping
  publish(word_, 5, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CompletionWordTest, NoWakeUpIsLostBetweenManyWaitersAndOnePublisher) {
  constexpr uint64_t kRounds = 3000;
  std::thread waiters[2];
  std::atomic<int> missed{0};
  for (std::thread& waiter : waiters) {
    waiter = std::thread([&] {
      for (uint64_t i = 1; i <= kRounds; ++i)
        missed += !wait_until_reached(word_, i, 0ns, Clock::now() + kSoon);
    });
  }
  for (uint64_t i = 1; i <= kRounds; ++i) {
    publish(word_, i, 0);
    if (i % 16 == 0) std::this_thread::yield();
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(missed, 0);
}

TEST_F(CompletionWordTest, EndsAtTheDeadlineWhateverTheOtherSideWrites) {
  std::atomic<bool> stop{false};
  std::thread liar([&] {
    for (uint64_t i = 0; !stop; ++i) publish(word_, i % 100, static_cast<int32_t>(i));
  });
  EXPECT_FALSE(wait_until_reached(word_, 1000, 10us, Clock::now() + 20ms));
  stop = true;
  liar.join();
}

}  // namespace
}  // namespace fargpu::rpc
