#include "common/rpc/liveness.h"

#include <gtest/gtest.h>

namespace fargpu::rpc {
namespace {

using namespace std::chrono_literals;
using Verdict = Liveness::Verdict;

class LivenessTest : public ::testing::Test {
 protected:
  Verdict look(std::chrono::milliseconds at, uint64_t received = 0, bool call_waits = true) {
    return liveness_.look(Liveness::Time(at), call_waits, received, 0);
  }
  Liveness liveness_{5s, Liveness::Time{}};
};

TEST_F(LivenessTest, TwoPingsThenLost) {
  EXPECT_EQ(look(4999ms), Verdict::kFine);
  EXPECT_EQ(look(5000ms), Verdict::kPing);
  EXPECT_EQ(look(9999ms), Verdict::kFine);
  EXPECT_EQ(look(10000ms), Verdict::kPing);
  EXPECT_EQ(look(14999ms), Verdict::kFine);
  EXPECT_EQ(look(15000ms), Verdict::kLost);
  EXPECT_DOUBLE_EQ(liveness_.silence(Liveness::Time(15s)).count(), 15.0);
}

TEST_F(LivenessTest, AnyByteStartsAgain) {
  EXPECT_EQ(look(5s), Verdict::kPing);
  EXPECT_EQ(look(10s), Verdict::kPing);
  EXPECT_EQ(look(14s, 1), Verdict::kFine);
  EXPECT_EQ(look(18s, 1), Verdict::kFine);
  EXPECT_EQ(look(19s, 1), Verdict::kPing);
}

TEST_F(LivenessTest, NobodyWaitsNobodyAsks) {
  EXPECT_EQ(look(60s, 0, false), Verdict::kFine);
  EXPECT_EQ(look(64s), Verdict::kFine);
  EXPECT_EQ(look(65s), Verdict::kPing);
}

// A stopped process (Ctrl-Z) must not take its own silence for the server's.
TEST_F(LivenessTest, ALongStopIsNotThreePeriods) {
  EXPECT_EQ(look(1s), Verdict::kFine);
  EXPECT_EQ(look(1h), Verdict::kPing);
  EXPECT_EQ(look(1h + 20ms), Verdict::kFine);
  EXPECT_EQ(look(1h + 5s), Verdict::kPing);
  EXPECT_EQ(look(1h + 9s), Verdict::kFine);
}

TEST_F(LivenessTest, MovingBytesOfALongFrameAreASignOfLife) {
  for (int period = 1; period <= 10; ++period) {
    const Liveness::Time now(5s * period);
    EXPECT_EQ(liveness_.look(now, true, 0, 1000 * period), Verdict::kPing);
    liveness_.could_not_ping(now, 1000 * period);
  }
  // Now it stalls.
  EXPECT_EQ(liveness_.look(Liveness::Time(55s), true, 0, 10000), Verdict::kPing);
  liveness_.could_not_ping(Liveness::Time(55s), 10000);
  EXPECT_EQ(liveness_.look(Liveness::Time(60s), true, 0, 10000), Verdict::kPing);
  EXPECT_EQ(liveness_.look(Liveness::Time(65s), true, 0, 10000), Verdict::kLost);
}

}  // namespace
}  // namespace fargpu::rpc
