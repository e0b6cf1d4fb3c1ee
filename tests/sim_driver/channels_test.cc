#include "sim/context/channels.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace fargpu::sim {
namespace {

constexpr int kConnections = 3;

class ChannelsTest : public testing::Test {
 protected:
  Task put(int stream, ChannelKind kind = ChannelKind::kCompute) {
    Task task;
    channels_.take(&task, kind, &streams_[stream]);
    return task;
  }
  Task put_graph(int stream, size_t lanes) {
    Task task;
    task.done = std::make_shared<Completion>();
    channels_.take_lanes(&task, lanes, &streams_[stream], &side_lanes_);
    return task;
  }

  const Channels channels_{kConnections};
  std::map<int, StreamChannels> streams_;
  std::vector<ChannelPointer> side_lanes_;
};

TEST_F(ChannelsTest, OneMoreStreamThanChannelsSharesTheFirst) {
  const Task first = put(1);
  EXPECT_TRUE(put(2).after.empty());
  EXPECT_TRUE(put(3).after.empty());
  const Task fourth = put(4);
  ASSERT_EQ(fourth.after.size(), 1u);
  EXPECT_EQ(fourth.after[0], first.begun);
}

TEST_F(ChannelsTest, WorkThatHasBegunHoldsNothingUp) {
  put(1).begun->complete();
  put(2), put(3);
  EXPECT_TRUE(put(4).after.empty());
}

TEST_F(ChannelsTest, AStreamKeepsItsChannel) {
  put(1), put(2), put(3);
  const Task shared = put(4);
  const Task behind = put(1);
  ASSERT_EQ(behind.after.size(), 1u);
  EXPECT_EQ(behind.after[0], shared.begun);
}

TEST_F(ChannelsTest, TheChannelOfADestroyedStreamComesNext) {
  put(1), put(2), put(3);
  const Task middle = put(2);
  streams_.erase(2);
  const Task next = put(4);
  ASSERT_EQ(next.after.size(), 1u);
  EXPECT_EQ(next.after[0], middle.begun);
}

TEST_F(ChannelsTest, EachKindHasItsOwn) {
  for (int stream = 1; stream <= kConnections; ++stream) put(stream);
  EXPECT_TRUE(put(9, ChannelKind::kToDevice).after.empty());
  EXPECT_TRUE(put(9, ChannelKind::kToHost).after.empty());
}

TEST_F(ChannelsTest, AGraphHoldsOneForEachLaneToItsEnd) {
  const Task graph = put_graph(1, 2);
  EXPECT_TRUE(put(2).after.empty());
  const Task other = put(3);  // with the first lane, which is in the channel of stream 1
  ASSERT_EQ(other.after.size(), 1u);
  EXPECT_EQ(other.after[0], graph.done);
  graph.done->complete();
  EXPECT_TRUE(put(4).after.empty());  // with the second one
}

TEST_F(ChannelsTest, LanesOfOneGraphInOneChannelDoNotWaitForEachOther) {
  EXPECT_TRUE(put_graph(1, 7).after.empty());
}

}  // namespace
}  // namespace fargpu::sim
