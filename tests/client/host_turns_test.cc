#include "client/stream/host_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

using namespace std::chrono_literals;

class HostTurnsTest : public testing::Test {
 protected:
  using Stream = std::shared_ptr<HostTurns::Share>;
  using Functions = std::vector<std::shared_ptr<void>>;

  // Functions in the stream with device work behind each.
  void fill(const Stream& stream, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      functions_.push_back(turns_.add(stream));
      turns_.enter(*stream, [] { return false; });
    }
  }
  // Whether `call` returns before `release` is called.
  template <typename Call, typename Release>
  bool returns_before(Call&& call, Release&& release) {
    std::atomic<bool> returned{false};
    std::thread caller([&] {
      call();
      returned = true;
    });
    std::this_thread::sleep_for(60ms);
    const bool before = returned;
    release();
    caller.join();
    return before;
  }

  HostTurns turns_;
  const Stream first_ = std::make_shared<HostTurns::Share>();
  const Stream second_ = std::make_shared<HostTurns::Share>();
  Functions functions_;  // that have not run
};

TEST_F(HostTurnsTest, FunctionsBehindFunctionsTakeNothing) {
  for (unsigned i = 0; i < 20 * HostTurns::kMost; ++i) functions_.push_back(turns_.add(first_));
  EXPECT_EQ(first_->taken, 0u);
  turns_.enter(*first_, [] { return false; });
  turns_.enter(*first_, [] { return false; });
  EXPECT_EQ(first_->taken, 1u);
}

TEST_F(HostTurnsTest, WorkBehindOneMoreWaitsUntilAFunctionHasRun) {
  fill(first_, HostTurns::kMost);
  functions_.push_back(turns_.add(first_));
  EXPECT_FALSE(returns_before([&] { turns_.enter(*first_, [] { return false; }); },
                              [&] { functions_.erase(functions_.begin()); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
  functions_.clear();
  EXPECT_EQ(first_->taken, 0u);
}

TEST_F(HostTurnsTest, WorkDoesNotWaitForAFunctionThatHasRun) {
  fill(first_, HostTurns::kMost);
  auto function = turns_.add(first_);
  EXPECT_FALSE(returns_before([&] { turns_.enter(*first_, [] { return false; }); },
                              [&] { function.reset(); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
}

TEST_F(HostTurnsTest, AStreamWithoutTurnsGoesOn) {
  fill(first_, HostTurns::kMost);
  fill(second_, 1);
  EXPECT_EQ(second_->taken, 1u);
}

TEST_F(HostTurnsTest, ALaunchWaitsForAllItsTurns) {
  fill(first_, HostTurns::kMost - 3);
  functions_.push_back(turns_.add_graph(first_, 2, [] { return false; }));
  EXPECT_FALSE(returns_before(
      [&] { functions_.push_back(turns_.add_graph(first_, 2, [] { return false; })); },
      [&] { functions_.erase(functions_.begin(), functions_.begin() + 3); }));
}

TEST_F(HostTurnsTest, NothingWaitsInASessionThatIsLost) {
  fill(first_, HostTurns::kMost);
  functions_.push_back(turns_.add(first_));
  turns_.enter(*first_, [] { return true; });
}

}  // namespace
}  // namespace fargpu::client
