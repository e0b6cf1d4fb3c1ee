#include "tests/hunt/order.h"

#include <gtest/gtest.h>

namespace fargpu::hunt {
namespace {

using Values = std::vector<uint32_t>;

// One device buffer (0), one pinned (1) and one pageable (2), each of two segments; streams 1 and 2
// are independent of the legacy one, 3 is a blocking one.
class OrderTest : public testing::Test {
 protected:
  OrderTest() {
    program_.threads = 2;
    program_.streams = 4;
    program_.blocking = {false, false, false, true};
    program_.stream_process = {0, 0, 0, 0};
    program_.events = 2;
    program_.tokens = 4;
    program_.buffers = {
        {Memory::kDevice, 2, 4}, {Memory::kPinned, 2, 4}, {Memory::kPageable, 2, 4}};
  }

  static Place at(int buffer, size_t segment = 0) {
    return {.buffer = buffer, .segment = segment, .count = 1};
  }
  size_t add(Operation operation) {
    program_.operations.push_back(operation);
    return program_.operations.size() - 1;
  }
  void fill(int stream, uint32_t value, int thread = 0) {
    add({.kind = Kind::kFill, .thread = thread, .stream = stream, .value = value, .to = at(0)});
  }
  void bring(int stream) {
    add({.kind = Kind::kCopyAsync, .stream = stream, .to = at(1), .from = at(0)});
  }
  void synchronize(int stream) { add({.kind = Kind::kStreamSync, .stream = stream}); }
  void event(Kind kind, int stream, int event = 0, int thread = 0) {
    add({.kind = kind, .thread = thread, .stream = stream, .event = event});
  }
  Values read(int buffer = 1, int thread = 0) {
    const size_t index = add({.kind = Kind::kHostRead, .thread = thread, .from = at(buffer)});
    program_.kept.assign(program_.operations.size(), true);
    return allowed_values(program_)[index][0];
  }

  Program program_;
};

TEST_F(OrderTest, AStreamIsInOrder) {
  fill(1, 5);
  fill(1, 6);
  bring(1);
  synchronize(1);
  EXPECT_EQ(read(), (Values{6}));
}

TEST_F(OrderTest, WithoutASynchronisationOldAndNewAreRight) {
  fill(1, 5);
  bring(1);
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(OrderTest, StreamsAreNotInOrder) {
  fill(1, 5);
  fill(2, 6);
  bring(1);
  synchronize(1);
  EXPECT_EQ(read(), (Values{5, 6}));
}

TEST_F(OrderTest, AnEventOrdersStreams) {
  fill(1, 5);
  event(Kind::kRecord, 1);
  event(Kind::kWaitEvent, 2);
  fill(2, 6);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{6}));
}

TEST_F(OrderTest, AWaitIsForTheRecordAtTheCall) {
  fill(1, 5);
  event(Kind::kRecord, 1);
  event(Kind::kWaitEvent, 2);
  fill(1, 6);
  event(Kind::kRecord, 1);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{5, 6}));
}

TEST_F(OrderTest, AnEventThatAnotherThreadMayRecordOrdersNothing) {
  fill(1, 5);
  event(Kind::kRecord, 1);
  event(Kind::kRecord, 2, 0, /*thread=*/1);
  event(Kind::kWaitEvent, 2);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(OrderTest, TheLegacyStreamWaitsForBlockingStreamsOnly) {
  fill(3, 5);
  bring(Program::kLegacy);
  synchronize(Program::kLegacy);
  EXPECT_EQ(read(), (Values{5}));
  fill(1, 6);
  bring(Program::kLegacy);
  synchronize(Program::kLegacy);
  EXPECT_EQ(read(), (Values{5, 6}));
}

TEST_F(OrderTest, ASynchronousCopyFromPinnedMemoryHasArrived) {
  add({.kind = Kind::kHostWrite, .value = 7, .to = at(1)});
  add({.kind = Kind::kCopy, .stream = Program::kLegacy, .to = at(0), .from = at(1)});
  add({.kind = Kind::kCopyAsync, .stream = 1, .to = at(2), .from = at(0)});
  synchronize(1);
  EXPECT_EQ(read(2), (Values{7}));
}

TEST_F(OrderTest, ASynchronousCopyFromPageableMemoryMayStillBeUnderWay) {
  add({.kind = Kind::kHostWrite, .value = 7, .to = at(2)});
  add({.kind = Kind::kCopy, .stream = Program::kLegacy, .to = at(0), .from = at(2)});
  add({.kind = Kind::kHostWrite, .value = 8, .to = at(2)});
  bring(1);
  synchronize(1);
  EXPECT_EQ(read(), (Values{0, 7}));  // but its bytes have been taken
}

TEST_F(OrderTest, ACopyFromDeviceToDeviceIsNotWaitedFor) {
  add({.kind = Kind::kCopy, .stream = Program::kLegacy, .to = at(0, 1), .from = at(0)});
  fill(1, 5);
  synchronize(1);
  add({.kind = Kind::kCopy, .stream = Program::kLegacy, .to = at(1), .from = at(0, 1)});
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(OrderTest, AnAsynchronousCopyReadsPinnedMemoryInStreamOrder) {
  add({.kind = Kind::kHostWrite, .value = 7, .to = at(1)});
  add({.kind = Kind::kCopyAsync, .stream = 1, .to = at(0), .from = at(1)});
  add({.kind = Kind::kHostWrite, .value = 8, .to = at(1)});
  add({.kind = Kind::kCopyAsync, .stream = 1, .to = at(2), .from = at(0)});
  synchronize(1);
  EXPECT_EQ(read(2), (Values{7, 8}));
}

TEST_F(OrderTest, AHostFunctionIsInStreamOrder) {
  add({.kind = Kind::kHostFunction, .stream = 1, .value = 9, .to = at(1)});
  add({.kind = Kind::kCopyAsync, .stream = 1, .to = at(0), .from = at(1)});
  add({.kind = Kind::kCopyAsync, .stream = 1, .to = at(2), .from = at(0)});
  synchronize(1);
  EXPECT_EQ(read(2), (Values{9}));
}

// A copy in the legacy stream does not wait for a function in a blocking one, a real driver says.
TEST_F(OrderTest, AHostFunctionIsNotWaitedForImplicitly) {
  add({.kind = Kind::kHostFunction, .stream = 3, .value = 9, .to = at(1)});
  add({.kind = Kind::kRecord, .stream = 3});
  add({.kind = Kind::kCopyAsync, .stream = Program::kLegacy, .to = at(0), .from = at(1)});
  bring(Program::kLegacy);
  synchronize(Program::kLegacy);
  EXPECT_EQ(read(), (Values{0, 9}));
}

// Nor does it take its bytes behind other work that it waits for implicitly: it only writes there.
TEST_F(OrderTest, AnImplicitWaitIsNotForTheBytesOfHostMemory) {
  add({.kind = Kind::kHostFunction, .stream = 3, .value = 9, .to = at(1)});
  fill(3, 5);
  add({.kind = Kind::kCopyAsync, .stream = Program::kLegacy, .to = at(0), .from = at(1)});
  bring(Program::kLegacy);
  synchronize(Program::kLegacy);
  EXPECT_EQ(read(), (Values{0, 9}));
}

TEST_F(OrderTest, AWaitForNothingDoesNothing) {
  fill(Program::kLegacy, 5);
  bring(Program::kLegacy);
  event(Kind::kWaitEvent, 3);
  synchronize(3);
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(OrderTest, ThreadsAreOrderedByTokens) {
  fill(1, 5);
  bring(1);
  synchronize(1);
  EXPECT_EQ(read(1, /*thread=*/1), (Values{0, 5}));
  add({.kind = Kind::kPost, .thread = 0, .token = 1});
  add({.kind = Kind::kAwait, .thread = 1, .token = 1});
  EXPECT_EQ(read(1, /*thread=*/1), (Values{5}));
}

TEST_F(OrderTest, WorkOfADestroyedStreamIsNotOrderedToItsSuccessor) {
  fill(1, 5);
  add({.kind = Kind::kNewStream, .stream = 1});
  fill(1, 6);
  add({.kind = Kind::kContextSync});
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{5, 6}));
}

// One graph (0) of nodes that bring, fill and look.
class GraphOrderTest : public OrderTest {
 protected:
  GraphOrderTest() { program_.graphs.emplace_back(); }

  int node(NodeKind kind, std::vector<int> after = {}, Place to = {}, Place from = {}) {
    std::vector<Node>& nodes = program_.graphs[0].nodes;
    Node node{.kind = kind, .after = std::move(after)};
    node.value = static_cast<uint32_t>(nodes.size() + 1) << 10;
    node.to = to, node.from = from;
    node.reads = kind == NodeKind::kHost && to.buffer < 0;
    nodes.push_back(node);
    return static_cast<int>(nodes.size()) - 1;
  }
  size_t launch(int stream) { return add({.kind = Kind::kLaunch, .stream = stream, .graph = 0}); }
  Values seen_by(size_t operation, int node) {
    program_.kept.assign(program_.operations.size(), true);
    return allowed_values(program_).at(operation, node)[0];
  }
};

TEST_F(GraphOrderTest, EdgesOrderNodesAndNothingElseDoes) {
  const int filled = node(NodeKind::kFill, {}, at(0));
  const int brought = node(NodeKind::kCopy, {filled}, at(1), at(0));
  const int looked = node(NodeKind::kHost, {brought}, {}, at(1));
  const int looked_early = node(NodeKind::kHost, {filled}, {}, at(1));
  const size_t launched = launch(1);
  EXPECT_EQ(seen_by(launched, looked), (Values{1024}));
  EXPECT_EQ(seen_by(launched, looked_early), (Values{0, 1024}));
}

TEST_F(GraphOrderTest, LaunchesOfOneGraphAreInOrderInWhateverStreams) {
  node(NodeKind::kCounted, {}, at(0));
  launch(1);
  launch(2);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{1025}));
}

TEST_F(GraphOrderTest, ALaunchIsBehindItsStreamAndBeforeWhatFollows) {
  node(NodeKind::kCopy, {}, at(1), at(0));
  fill(1, 5);
  launch(1);
  fill(1, 6);
  synchronize(1);
  EXPECT_EQ(read(), (Values{5}));
}

TEST_F(GraphOrderTest, ALaunchIsNotOrderedToOtherStreams) {
  node(NodeKind::kCopy, {}, at(1), at(0));
  fill(2, 5);
  launch(1);
  synchronize(1);
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(GraphOrderTest, AChangeCountsFromTheNextLaunchOn) {
  const int filled = node(NodeKind::kFill, {}, at(0));
  const int looked =
      node(NodeKind::kHost, {node(NodeKind::kCopy, {filled}, at(1), at(0))}, {}, at(1));
  const size_t first = launch(1);
  add({.kind = Kind::kSetParams, .value = 7, .to = at(0), .graph = 0, .node = filled});
  const size_t second = launch(1);
  add({.kind = Kind::kUpdate, .value = 4096, .graph = 0});
  const size_t third = launch(1);
  EXPECT_EQ(seen_by(first, looked), (Values{1024}));
  EXPECT_EQ(seen_by(second, looked), (Values{7}));
  EXPECT_EQ(seen_by(third, looked), (Values{4096}));
}

TEST_F(GraphOrderTest, WhatFollowsAChildFollowsAllThatIsInside) {
  const int child = node(NodeKind::kChild);
  const int inside = node(NodeKind::kFill, {}, at(0));
  program_.graphs[0].nodes[static_cast<size_t>(inside)].inside = child;
  const int looked =
      node(NodeKind::kHost, {node(NodeKind::kCopy, {child}, at(1), at(0))}, {}, at(1));
  EXPECT_EQ(seen_by(launch(1), looked), (Values{2048}));
}

TEST_F(GraphOrderTest, LaunchesAreBehindEachOtherIfTheyDoSomething) {
  node(NodeKind::kEmpty);
  fill(1, 5);
  launch(1);
  launch(2);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{0, 5}));
}

TEST_F(GraphOrderTest, EventsOfNodesOrderStreams) {
  const int filled = node(NodeKind::kFill, {}, at(0));
  node(NodeKind::kRecord, {filled});
  launch(1);
  event(Kind::kWaitEvent, 2);
  bring(2);
  synchronize(2);
  EXPECT_EQ(read(), (Values{1024}));
}

TEST_F(GraphOrderTest, ANodeThatWaitsFollowsTheRecordAtTheLaunch) {
  const int waited = node(NodeKind::kWait);
  const int brought = node(NodeKind::kCopy, {waited}, at(1), at(0));
  const int looked = node(NodeKind::kHost, {brought}, {}, at(1));
  fill(2, 5);
  event(Kind::kRecord, 2);
  EXPECT_EQ(seen_by(launch(1), looked), (Values{5}));
}

TEST_F(GraphOrderTest, BytesOfPageableMemoryMayBeTakenFromTheLaunchOn) {
  const int written = node(NodeKind::kHost, {}, at(2));
  node(NodeKind::kCopy, {written}, at(0), at(2));
  launch(1);
  launch(1);
  bring(1);
  synchronize(1);
  EXPECT_EQ(read(), (Values{0, 1024, 1025}));
}

TEST_F(GraphOrderTest, WhatIsLeftOutLeavesItsOrder) {
  const int filled = node(NodeKind::kFill, {}, at(0));
  const int between = node(NodeKind::kEmpty, {filled});
  const int brought = node(NodeKind::kCopy, {between}, at(1), at(0));
  const int looked = node(NodeKind::kHost, {brought}, {}, at(1));
  const size_t launched = launch(1);
  program_.kept.assign(program_.operations.size(), true);
  ASSERT_TRUE(leave_out(program_, program_.operations.size() + static_cast<size_t>(between)));
  EXPECT_EQ(seen_by(launched, looked), (Values{1024}));
}

TEST(MayBeTest, WritesThatRaceMayBeMixedByteByByte) {
  EXPECT_TRUE(may_be({70, 0x103800}, 70));
  EXPECT_TRUE(may_be({70, 0x103800}, 0x103846));
  EXPECT_FALSE(may_be({70, 0x103800}, 0x103847));
  EXPECT_FALSE(may_be({0x103800}, 0x103846));
  EXPECT_FALSE(may_be({}, 0));
}

TEST_F(OrderTest, ProgramsAreTheSameForTheSameSeed) {
  EXPECT_EQ(describe(generate(17)), describe(generate(17)));
  EXPECT_NE(describe(generate(17)), describe(generate(18)));
}

}  // namespace
}  // namespace fargpu::hunt
