// Streams that the executor has to let go, and driver calls that wait for streams: never both in
// one device, and nobody waits for ever.
#include "server/stream/stream_holds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace fargpu::server {
namespace {

constexpr auto kShort = std::chrono::milliseconds(30);

class StreamHoldsTest : public ::testing::Test {
 protected:
  // A thread that begins a call.
  std::thread call(CUdevice device) {
    return std::thread([this, device] {
      begun_ = holds_.begin_call(device);
      over_ = true;
    });
  }
  StreamHolds holds_;
  std::atomic<bool> begun_{false}, over_{false};
};

TEST_F(StreamHoldsTest, ACallWaitsForHeldStreamsOfItsDevice) {
  holds_.hold(1);
  holds_.hold(1);
  EXPECT_TRUE(holds_.begin_call(2));
  holds_.end_call(2);
  std::thread thread = call(1);
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(over_);
  holds_.release(1);
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(over_);
  holds_.release(1);
  thread.join();
  EXPECT_TRUE(begun_);
}

TEST_F(StreamHoldsTest, ACallThatConcernsAllDevicesWaitsForEach) {
  holds_.hold(7);
  std::thread thread = call(StreamHolds::kEveryDevice);
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(over_);
  holds_.release(7);
  thread.join();
  EXPECT_TRUE(begun_);
}

TEST_F(StreamHoldsTest, AStreamIsNotHeldBeforeCallsAreOver) {
  ASSERT_TRUE(holds_.begin_call(1));
  ASSERT_TRUE(holds_.begin_call(StreamHolds::kEveryDevice));
  std::atomic<bool> held{false};
  std::thread executor([&] {
    holds_.hold(1);
    held = true;
  });
  holds_.end_call(1);
  std::this_thread::sleep_for(kShort);
  EXPECT_FALSE(held);
  holds_.end_call(StreamHolds::kEveryDevice);
  executor.join();
  EXPECT_TRUE(held);
}

// A call that waits for its turn is none that has begun: the function that it waits for may be
// waiting for one that comes now.
TEST_F(StreamHoldsTest, AWaitingCallHoldsUpNoStream) {
  holds_.hold(1);
  std::thread thread = call(1);
  std::this_thread::sleep_for(kShort);
  holds_.hold(1);
  holds_.release(1);
  holds_.release(1);
  thread.join();
  EXPECT_TRUE(begun_);
}

TEST_F(StreamHoldsTest, TheEndOfTheSessionEndsAllWaits) {
  holds_.hold(1);
  std::thread thread = call(1);
  std::this_thread::sleep_for(kShort);
  holds_.close();
  thread.join();
  EXPECT_FALSE(begun_);
}

}  // namespace
}  // namespace fargpu::server
