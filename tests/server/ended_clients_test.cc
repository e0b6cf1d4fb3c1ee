#include "server/job/ended_clients.h"

#include <gtest/gtest.h>

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;

class EndedClientsTest : public ::testing::Test {
 protected:
  void turn(milliseconds time = milliseconds(0)) {
    loop_.restart();
    time.count() == 0 ? loop_.poll() : loop_.run_for(time);
  }
  EndedClients::Done count() {
    return [this] { ++done_; };
  }

  boost::asio::io_context loop_;
  EndedClients ended_{loop_, milliseconds(50)};
  int done_ = 0;
};

TEST_F(EndedClientsTest, NobodyIsWaitedForAndYetItIsSaidLater) {
  ended_.wait({}, count());
  EXPECT_EQ(done_, 0);
  turn();
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(ended_.waits(), 0u);
}

TEST_F(EndedClientsTest, EachIsThereOrGoesAndThenItIsOver) {
  const auto wait = ended_.wait({1, 2, 3}, count());
  ended_.there(wait, 1);
  ended_.there(wait, 1);
  ended_.gone(3);
  turn();
  EXPECT_EQ(done_, 0);
  ended_.gone(2);
  ended_.gone(2);
  turn();
  EXPECT_EQ(done_, 1);
}

TEST_F(EndedClientsTest, AClientThatIsThereForOneWaitMayEndForTheNext) {
  const auto early = ended_.wait({1}, count());
  ended_.wait({1}, count());
  ended_.there(early, 1);
  turn();
  EXPECT_EQ(done_, 1);
  ended_.gone(1);
  turn();
  EXPECT_EQ(done_, 2);
}

TEST_F(EndedClientsTest, AWorkerThatHangsIsWaitedForNotForLong) {
  const auto wait = ended_.wait({1}, count());
  turn(milliseconds(200));
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(ended_.waits(), 0u);
  ended_.there(wait, 1);
  ended_.gone(1);
  turn();
  EXPECT_EQ(done_, 1);
}

}  // namespace
}  // namespace fargpu::server
