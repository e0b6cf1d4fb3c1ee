#include "client/stream/queue_limit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "client/stream/host_calls.h"

namespace fargpu::client {
namespace {

using namespace std::chrono_literals;

class QueueLimitTest : public testing::Test {
 protected:
  void hold() { id_ = calls_.add({}); }
  void release() { calls_.cancel(id_); }
  void fill(QueueLimit::Share& stream, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) limit_.enter(stream, calls_, busy_);
  }

  Observers observers_;
  HostCalls calls_{observers_};
  QueueLimit limit_;
  QueueLimit::Share first_, second_;  // two streams
  uint64_t id_ = 0;
  const std::function<bool()> busy_ = [] {
    ADD_FAILURE() << "asked about a stream although there is room";
    return false;
  };
};

TEST_F(QueueLimitTest, NothingIsCountedWhileNoFunctionIsOutstanding) {
  fill(first_, 2 * QueueLimit::kMost);
  hold();
  fill(first_, QueueLimit::kMost);
}

TEST_F(QueueLimitTest, WaitsUntilTheFunctionHasReturned) {
  hold();
  fill(first_, QueueLimit::kMost);
  std::atomic<bool> entered{false};
  std::thread submitter([&] {
    limit_.enter(first_, calls_, [] { return false; });
    entered = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(entered);
  release();
  submitter.join();
  EXPECT_TRUE(entered);
}

TEST_F(QueueLimitTest, CountsAnewForTheNextFunction) {
  hold();
  fill(first_, QueueLimit::kMost);
  release();
  hold();
  fill(first_, QueueLimit::kMost);
}

TEST_F(QueueLimitTest, AnIdleStreamGoesOnWhileAnotherOneIsHeld) {
  hold();
  fill(first_, 10);
  int asked = 0;
  for (uint64_t i = 0; i < 3 * QueueLimit::kMost; ++i) {
    limit_.enter(second_, calls_, [&] { return ++asked > 0; });
  }
  EXPECT_GE(asked, 2);
  EXPECT_LE(asked, 4);
}

TEST_F(QueueLimitTest, SeveralPlacesCountAtOnce) {
  hold();
  limit_.enter(first_, calls_, busy_, QueueLimit::kMost - 1);
  fill(first_, 1);  // which they belong to
  int asked = 0;
  limit_.enter(first_, calls_, [&] { return ++asked > 1; });
  EXPECT_EQ(asked, 2);
}

TEST_F(QueueLimitTest, TheLastPlaceOfAnOperationDoesNotWait) {
  hold();
  fill(second_, 500);
  limit_.enter(first_, calls_, busy_, 900);  // the first operation of a stream
  fill(first_, 1);
}

TEST_F(QueueLimitTest, FurtherStreamsMayBeginWhenOneIsFull) {
  hold();
  fill(first_, QueueLimit::kMost);
  fill(second_, 1);
  int asked = 0;
  limit_.enter(second_, calls_, [&] { return ++asked > 0; });
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace fargpu::client
