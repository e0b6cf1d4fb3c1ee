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
  HostTurnsTest() { (void)busy_.take(); }

  using Stream = std::shared_ptr<HostTurns::Share>;
  using Functions = std::vector<std::shared_ptr<void>>;
  using Of = HostTurns::Of;

  std::shared_ptr<void> add(const Stream& stream, Of of = Of::kApart,
                            const StreamQueue* legacy = nullptr) {
    auto function = turns_.make(stream, of);
    while (!turns_.may_enter(function, legacy, follow_, is_lost))
      turns_.wait_to_enter(function, legacy, follow_, is_lost);
    turns_.has_entered(function);
    return function;
  }
  std::shared_ptr<void> add_beside(const Stream& stream) {
    return add(stream, Of::kBlocking, &busy_);
  }
  void fill_beside(const Stream& stream, unsigned count) {
    for (unsigned i = 0; i < count; ++i) functions_.push_back(add_beside(stream));
  }
  std::shared_ptr<void> add_graph(const Stream& stream, unsigned host_nodes, Of of = Of::kApart) {
    return turns_.add_graph(stream, of, host_nodes, is_lost);
  }
  void enter(const Stream& stream, Of of = Of::kApart) {
    turns_.enter(*stream, of, is_lost);
    turns_.sent(*stream, of);
  }

  // Functions in the stream with device work behind each.
  void fill(const Stream& stream, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      functions_.push_back(add(stream));
      enter(stream);
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

  static bool is_lost() { return false; }

  HostTurns turns_;
  StreamQueue busy_;  // of a legacy stream with one operation
  std::atomic<unsigned> asked_{0};
  const HostTurns::Follow follow_ = [this] { ++asked_; };
  const Stream first_ = std::make_shared<HostTurns::Share>();
  const Stream second_ = std::make_shared<HostTurns::Share>();
  const Stream legacy_ = std::make_shared<HostTurns::Share>();
  Functions functions_;  // that have not run
};

TEST_F(HostTurnsTest, FunctionsBehindFunctionsTakeNothing) {
  for (unsigned i = 0; i < 20 * HostTurns::kMost; ++i) functions_.push_back(add(first_));
  EXPECT_EQ(first_->taken, 0u);
  enter(first_);
  enter(first_);
  EXPECT_EQ(first_->taken, 1u);
}

TEST_F(HostTurnsTest, WorkBehindOneMoreWaitsUntilAFunctionHasRun) {
  fill(first_, HostTurns::kMost);
  functions_.push_back(add(first_));
  EXPECT_FALSE(
      returns_before([&] { enter(first_); }, [&] { functions_.erase(functions_.begin()); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
  functions_.clear();
  EXPECT_EQ(first_->taken, 0u);
}

TEST_F(HostTurnsTest, WorkDoesNotWaitForAFunctionThatHasRun) {
  fill(first_, HostTurns::kMost);
  auto function = add(first_);
  EXPECT_FALSE(returns_before([&] { enter(first_); }, [&] { function.reset(); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
}

TEST_F(HostTurnsTest, AStreamWithoutTurnsGoesOn) {
  fill(first_, HostTurns::kMost);
  fill(second_, 1);
  EXPECT_EQ(second_->taken, 1u);
}

TEST_F(HostTurnsTest, ALaunchWaitsForAllItsTurns) {
  constexpr unsigned kOfLaunch = 2 * HostTurns::kOfHostNode + 1;  // one: behind a function
  fill(first_, HostTurns::kMost - kOfLaunch);
  functions_.push_back(add_graph(first_, 2));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
  std::shared_ptr<void> last;
  EXPECT_FALSE(returns_before(
      [&] { last = add_graph(first_, 2); },
      [&] { functions_.erase(functions_.begin(), functions_.begin() + kOfLaunch); }));
}

TEST_F(HostTurnsTest, ALaunchBehindAFunctionTakesOneMore) {
  functions_.push_back(add(first_));
  enter(first_);
  functions_.push_back(add_graph(first_, 1));
  EXPECT_EQ(first_->taken, 1u + HostTurns::kOfHostNode + 1u);
  enter(first_);
  functions_.push_back(add_graph(first_, 2));
  EXPECT_EQ(first_->taken, 1u + 3u * HostTurns::kOfHostNode + 1u);
}

TEST_F(HostTurnsTest, ALaunchInABlockingStreamTakesOneMore) {
  functions_.push_back(add_graph(first_, 2, Of::kApart));
  EXPECT_EQ(first_->taken, 2u * HostTurns::kOfHostNode);
  functions_.push_back(add_graph(second_, 2, Of::kBlocking));
  EXPECT_EQ(second_->taken, 2u * HostTurns::kOfHostNode + 1u);
}

TEST_F(HostTurnsTest, WorkOfTheLegacyStreamIsBehindFunctionsOfBlockingOnes) {
  functions_.push_back(add(first_, Of::kBlocking));
  functions_.push_back(add(second_));
  enter(legacy_, Of::kLegacy);
  EXPECT_EQ(first_->taken, 1u);
  EXPECT_EQ(second_->taken, 0u);
  enter(first_, Of::kBlocking);
  EXPECT_EQ(first_->taken, 1u);
}

TEST_F(HostTurnsTest, WorkOfBlockingStreamsIsBehindFunctionsOfTheLegacyOne) {
  functions_.push_back(add(legacy_, Of::kLegacy));
  enter(first_);
  EXPECT_EQ(legacy_->taken, 0u);
  enter(first_, Of::kBlocking);
  EXPECT_EQ(legacy_->taken, 1u);
}

TEST_F(HostTurnsTest, BesideWorkOfTheLegacyStreamEachFunctionTakesATurn) {
  functions_.push_back(add(first_, Of::kBlocking));
  enter(legacy_, Of::kLegacy);
  fill_beside(first_, 10);
  EXPECT_EQ(first_->taken, 11u);
  fill_beside(first_, HostTurns::kMost - 11);
  std::shared_ptr<void> last;
  EXPECT_FALSE(returns_before([&] { last = add_beside(first_); },
                              [&] { functions_.erase(functions_.begin()); }));
  functions_.clear();
  last.reset();
  functions_.push_back(add(first_, Of::kBlocking));
  EXPECT_EQ(first_->taken, 0u);
}

TEST_F(HostTurnsTest, AFunctionGoesOnWhenTheWorkOfTheLegacyStreamHasEnded) {
  fill_beside(first_, HostTurns::kMost);
  std::shared_ptr<void> last;
  EXPECT_FALSE(returns_before([&] { last = add_beside(first_); }, [&] { busy_.done(1); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
}

TEST_F(HostTurnsTest, NobodyIsAskedForTheLegacyStreamRightBehindTheFirstFunctions) {
  functions_.push_back(add_beside(first_));
  EXPECT_EQ(asked_, 0u);
  std::this_thread::sleep_for(HostTurns::kSendsOfBefore);
  functions_.push_back(add_beside(first_));
  EXPECT_EQ(asked_, 1u);
}

TEST_F(HostTurnsTest, AFunctionForWhichThereIsNoTurnDoesNotEnter) {
  auto function = turns_.make(first_, Of::kBlocking);
  fill_beside(first_, HostTurns::kMost);
  EXPECT_FALSE(turns_.may_enter(function, &busy_, follow_, is_lost));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
  EXPECT_FALSE(returns_before([&] { turns_.wait_to_enter(function, &busy_, follow_, is_lost); },
                              [&] { functions_.clear(); }));
  EXPECT_TRUE(turns_.may_enter(function, &busy_, follow_, is_lost));
  EXPECT_EQ(first_->taken, 1u);
}

TEST_F(HostTurnsTest, WorkThatIsBeingSentMayComeBehindAFunction) {
  turns_.enter(*first_, Of::kApart, is_lost);
  functions_.push_back(add(first_));
  functions_.push_back(add(first_));
  EXPECT_EQ(first_->taken, 2u);
  turns_.sent(*first_, Of::kApart);
  functions_.push_back(add(first_));
  EXPECT_EQ(first_->taken, 2u);
  enter(first_);
  EXPECT_EQ(first_->taken, 3u);
}

TEST_F(HostTurnsTest, WorkThatWaitsForATurnIsNotBeingSent) {
  fill(first_, HostTurns::kMost);
  functions_.push_back(add(first_));
  EXPECT_FALSE(returns_before([&] { enter(first_); },
                              [&] {
                                for (int i = 0; i < 10; ++i) functions_.push_back(add(first_));
                                functions_.erase(functions_.begin(), functions_.end() - 9);
                              }));
}

TEST_F(HostTurnsTest, WorkMayComeBeforeAFunctionThatIsBeingSent) {
  functions_.push_back(add(first_));
  functions_.push_back(turns_.make(first_, Of::kApart));
  ASSERT_TRUE(turns_.may_enter(functions_.back(), nullptr, follow_, is_lost));
  enter(first_);  // behind one of both
  EXPECT_EQ(first_->taken, 2u);
  turns_.has_entered(functions_.back());
  enter(first_);  // behind the second one, or behind other work
  EXPECT_EQ(first_->taken, 2u);
}

TEST_F(HostTurnsTest, FunctionsThatAreSentAtATimeHaveNoOrder) {
  for (int i = 0; i < 2; ++i) {
    functions_.push_back(turns_.make(first_, Of::kApart));
    ASSERT_TRUE(turns_.may_enter(functions_.back(), nullptr, follow_, is_lost));
  }
  turns_.has_entered(functions_[1]);
  turns_.has_entered(functions_[0]);
  enter(first_);
  EXPECT_EQ(first_->taken, 2u);
  functions_.push_back(add(first_));
  functions_.push_back(add(first_));
  enter(first_);
  EXPECT_EQ(first_->taken, 3u);
}

TEST_F(HostTurnsTest, WorkOfBlockingStreamsThatIsBeingSentMayComeBehindTheLegacyOne) {
  turns_.enter(*second_, Of::kBlocking, is_lost);
  functions_.push_back(add(legacy_, Of::kLegacy));
  functions_.push_back(add(first_, Of::kBlocking));
  EXPECT_EQ(legacy_->taken, 1u);
  EXPECT_EQ(first_->taken, 0u);
  turns_.sent(*second_, Of::kBlocking);
  functions_.push_back(add(legacy_, Of::kLegacy));
  EXPECT_EQ(legacy_->taken, 1u);
}

TEST_F(HostTurnsTest, FunctionsThatAreBeingSentMayComeBehindWorkOfTheLegacyStream) {
  for (int i = 0; i < 3; ++i) {
    functions_.push_back(turns_.make(first_, Of::kBlocking));
    ASSERT_TRUE(turns_.may_enter(functions_.back(), nullptr, follow_, is_lost));
  }
  enter(second_, Of::kBlocking);
  EXPECT_EQ(first_->taken, 0u);
  enter(legacy_, Of::kLegacy);
  EXPECT_EQ(first_->taken, 3u);
  for (const auto& functions : functions_) turns_.has_entered(functions);
  functions_.push_back(add(first_, Of::kBlocking));
  enter(legacy_, Of::kLegacy);
  EXPECT_EQ(first_->taken, 4u);
}

TEST_F(HostTurnsTest, AFunctionWaitsForTheTurnOfWorkThatIsBeingSent) {
  turns_.enter(*first_, Of::kApart, is_lost);
  for (unsigned i = 0; i < HostTurns::kMost; ++i) functions_.push_back(add(first_));
  std::shared_ptr<void> last;
  EXPECT_FALSE(
      returns_before([&] { last = add(first_); }, [&] { functions_.erase(functions_.begin()); }));
  EXPECT_EQ(first_->taken, HostTurns::kMost);
}

TEST_F(HostTurnsTest, AFunctionHasOneTurnAndNoMore) {
  functions_.push_back(add(first_, Of::kBlocking));
  for (unsigned i = 1; i <= 10; ++i) {
    enter(legacy_, Of::kLegacy);
    EXPECT_EQ(first_->taken, i);
    functions_.push_back(add_beside(first_));
  }
}

TEST_F(HostTurnsTest, WorkOfTheLegacyStreamDoesNotWaitForATurnThatItDoesNotTake) {
  functions_.push_back(add(first_, Of::kBlocking));
  enter(legacy_, Of::kLegacy);
  fill_beside(first_, HostTurns::kMost - 1);
  enter(legacy_, Of::kLegacy);
  EXPECT_EQ(first_->taken, HostTurns::kMost);
}

TEST_F(HostTurnsTest, WorkOfTheSameStreamTakesATurnBesideThatOfTheFunction) {
  functions_.push_back(add(first_, Of::kBlocking));
  enter(legacy_, Of::kLegacy);
  functions_.push_back(add_beside(first_));
  enter(first_, Of::kBlocking);
  EXPECT_EQ(first_->taken, 3u);
}

TEST_F(HostTurnsTest, FunctionsOfStreamsThatAreApartDoNotCountForTheLegacyStream) {
  functions_.push_back(add(second_));
  enter(legacy_, Of::kLegacy);
  EXPECT_EQ(second_->taken, 0u);
}

TEST_F(HostTurnsTest, AnyNumberOfStreamsHasNotAnyNumberOfTurns) {
  for (unsigned i = 0; i < HostTurns::kMostOfAll; ++i)
    fill(std::make_shared<HostTurns::Share>(), 1);
  functions_.push_back(add(first_));
  EXPECT_FALSE(returns_before([&] { enter(first_); },
                              [&] { functions_.erase(functions_.begin(), functions_.end() - 1); }));
}

TEST_F(HostTurnsTest, NothingWaitsInASessionThatIsLost) {
  fill(first_, HostTurns::kMost);
  functions_.push_back(add(first_));
  turns_.enter(*first_, Of::kApart, [] { return true; });
}

}  // namespace
}  // namespace fargpu::client
