#include "server/worker/session_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace fargpu::server {
namespace {

using namespace std::chrono_literals;

class SessionWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here_.reset(ends[0]);
    peer_.reset(ends[1]);
  }
  std::unique_ptr<SessionWatch> watch(SessionWatch::Options options) {
    auto made = SessionWatch::start(
        here_.get(), activity_, [this] { ++alive_; }, [this] { stuck_ = true; }, options);
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }
  template <typename Condition>
  static bool soon(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(5ms);
    return condition();
  }

  Fd here_, peer_;
  Activity activity_;
  std::atomic<int> alive_{0};
  std::atomic<bool> stuck_{false};
};

TEST_F(SessionWatchTest, SaysThatTheWorkerLivesWhileThereIsWork) {
  const auto watching = watch({.alive_every = 20ms, .grace = 10s});
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(alive_, 0);  // idle, and by now asleep
  activity_.begin();     // one long call
  EXPECT_TRUE(soon([&] { return alive_ >= 3; }));
  activity_.end();
  std::this_thread::sleep_for(60ms);
  int before = alive_;
  for (int i = 0; i < 100; ++i) {  // many calls
    activity_.begin();
    std::this_thread::sleep_for(1ms);
    activity_.end();
  }
  EXPECT_GT(alive_, before);
  std::this_thread::sleep_for(100ms);
  before = alive_;
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(alive_, before);
  EXPECT_FALSE(stuck_);
}

TEST_F(SessionWatchTest, WorkThatBeginsAtAnyMomentIsSeen) {
  const auto watching = watch({.alive_every = 5ms, .grace = 10s});
  for (int pause = 0; pause < 20; ++pause) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    const int before = alive_;
    activity_.begin();
    EXPECT_TRUE(soon([&] { return alive_ > before; })) << pause;
    activity_.end();
  }
}

TEST_F(SessionWatchTest, TellsThatTheClientHasBeenGone) {
  const auto watching = watch({.alive_every = 10s, .grace = 20ms});
  ASSERT_EQ(::write(peer_.get(), "data", 4), 4);
  std::this_thread::sleep_for(60ms);
  EXPECT_FALSE(stuck_);  // a client that lives, whose data nobody takes
  peer_.reset();
  EXPECT_TRUE(soon([&] { return stuck_.load(); }));
}

// The connection stays open, as where its end is still on a network.
TEST_F(SessionWatchTest, TheEndOfTheClientsProcessEndsTheConnection) {
  const pid_t client = ::fork();
  if (client == 0) {
    ::pause();
    ::_exit(0);
  }
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, client, 0)));
  ASSERT_TRUE(process.valid());
  auto watching = std::move(*SessionWatch::start(
      here_.get(), activity_, [] {}, [this] { stuck_ = true; }, {.alive_every = 10s, .grace = 10s},
      {}, process.get()));
  ASSERT_EQ(::write(peer_.get(), "data", 4), 4);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(activity_.peer_gone());
  ::kill(client, SIGKILL);
  ASSERT_EQ(::waitpid(client, nullptr, 0), client);
  EXPECT_TRUE(soon([&] { return activity_.peer_gone(); }));
  char bytes[8];
  EXPECT_EQ(::read(here_.get(), bytes, sizeof bytes), 4);
  EXPECT_EQ(::read(here_.get(), bytes, sizeof bytes), 0);
  watching.reset();
  EXPECT_FALSE(stuck_);
}

TEST_F(SessionWatchTest, SaysNothingWhenTheSessionEndsInTime) {
  auto watching = watch({.alive_every = 10s, .grace = 10s});
  peer_.reset();
  std::this_thread::sleep_for(20ms);
  watching.reset();
  EXPECT_FALSE(stuck_);
}

TEST_F(SessionWatchTest, RefusesWhatIsNoDescriptor) {
  EXPECT_FALSE(SessionWatch::start(
                   -1, activity_, [] {}, [] {}, {})
                   .ok());
}

}  // namespace
}  // namespace fargpu::server
