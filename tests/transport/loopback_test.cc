// The faults that a loopback pair can inject.
#include "common/transport/loopback/loopback.h"

#include <gtest/gtest.h>

#include "tests/transport/frames.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;
using transport::make_loopback_pair;

TEST(Loopback, DropsTheConnectionAtAFrame) {
  transport::LoopbackOptions options;
  options.first_faults.drop_at_frame = 3;
  auto [first, second] = make_loopback_pair(options);
  ASSERT_TRUE(send_frame(*first, 1, 8, 0).ok());
  ASSERT_TRUE(send_frame(*first, 2, 8, 0).ok());
  EXPECT_EQ(send_frame(*first, 3, 8, 0).code(), StatusCode::kLost);
  CheckingHandler handler;
  auto received = second->receive(handler, kNoDeadline);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(handler.headers.size(), 2u);
  EXPECT_EQ(second->receive(handler, kNoDeadline).status().code(), StatusCode::kLost);
}

TEST(Loopback, TruncatesAFrame) {
  transport::LoopbackOptions options;
  options.first_faults.truncate_at_frame = 2;
  auto [first, second] = make_loopback_pair(options);
  ASSERT_TRUE(send_frame(*first, 1, 8, 0).ok());
  ASSERT_TRUE(send_frame(*first, 2, 8, 0).ok());
  CheckingHandler handler;
  auto received = second->receive(handler, kNoDeadline);
  EXPECT_EQ(received.status().code(), StatusCode::kLost);
  EXPECT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(first->flush(kNoDeadline).code(), StatusCode::kLost);
}

TEST(Loopback, DelaysFrames) {
  transport::LoopbackOptions options;
  options.first_faults.delay = 20ms;
  auto [first, second] = make_loopback_pair(options);
  const auto begin = Clock::now();
  ASSERT_TRUE(send_frame(*first, 1, 8, 0).ok());
  CheckingHandler handler;
  auto early = second->receive(handler, begin + 5ms);
  ASSERT_TRUE(early.ok());
  // On a busy machine the call itself may begin after the delay.
  if (Clock::now() - begin < 20ms) {
    EXPECT_EQ(*early, 0u);
  }
  if (*early == 0) {
    ASSERT_TRUE(second->receive(handler, kNoDeadline).ok());
  }
  EXPECT_EQ(handler.headers.size(), 1u);
  EXPECT_GE(Clock::now() - begin, 20ms);
}

TEST(Loopback, TamperedFramesAreRefused) {
  transport::LoopbackOptions options;
  options.first_faults.tamper = [](std::span<std::byte> frame) { frame[0] = std::byte{0}; };
  auto [first, second] = make_loopback_pair(options);
  ASSERT_TRUE(send_frame(*first, 1, 8, 0).ok());
  CheckingHandler handler;
  EXPECT_EQ(second->receive(handler, kNoDeadline).status().code(), StatusCode::kProtocol);
}

TEST(Loopback, QueueIsBounded) {
  transport::LoopbackOptions options;
  options.queue_bytes = 1000;
  auto [first, second] = make_loopback_pair(options);
  int sent = 0;
  while (send_frame(*first, 1, 80, 0, 1, Clock::now() - 1s).ok()) ++sent;
  EXPECT_GE(sent, 8);
  EXPECT_LE(sent, 10);
  CheckingHandler handler;
  ASSERT_TRUE(second->receive(handler, kNoDeadline).ok());
  EXPECT_TRUE(
      send_frame(*first, 1, 80, 5000, 1, Clock::now() - 1s).ok());  // alone it may be larger
}

}  // namespace
}  // namespace fargpu::test
