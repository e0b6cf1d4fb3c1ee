// A session's gate: which frames wait at it, which pass, and that nothing is lost or out of order.
#include <gmock/gmock.h>

#include "generated/schema/memory.capnp.h"
#include "tests/server/ordered_copies_fixture.h"

namespace fargpu::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GateTest : public OrderedCopiesTest {
 protected:
  GateTest() { daemon_.orders = &orders_; }
  void TearDown() override {
    orders_.set(Gate::kOpen);
    OrderedCopiesTest::TearDown();
  }
  uint32_t set(unsigned value, uint16_t flags = 0) {
    return send<schema::CuMemsetD8AsyncParams>(
        schema::op_cuMemsetD8Async,
        [&](auto p) {
          p.setDstDevice(kDevice);
          p.setUc(static_cast<uint8_t>(value));
          p.setN(1);
        },
        flags);
  }
  uint32_t allocate(uint64_t bytes) {
    return send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                            [&](auto p) { p.setBytesize(bytes); });
  }
  void expect_allocated(uint32_t sequence) {
    const Answer answer = next();
    EXPECT_EQ(answer.header.sequence, sequence);
    EXPECT_EQ(answer.header.result, CUDA_SUCCESS);
  }
  // It runs in the client from the return on.
  void run_host_function(uint64_t id) {
    expect_answer(
        send<schema::FgHostCallParams>(schema::op_fgHostCall, [&](auto p) { p.setId(id); }),
        CUDA_SUCCESS);
    EXPECT_EQ(next().header.opcode, wire::kHostCall);
  }
  void host_function_returns(uint64_t id) {
    send<schema::HostCallDone>(
        wire::kHostCallDone, [&](auto p) { p.setId(id); }, 0, 0);
  }
  static bool released() { return driver().saw("host function returned"); }
  // What was sent has been handled, and nothing of it has been answered.
  void settle() {
    const uint32_t question = send(wire::kInspect);
    const Answer answer = next();
    EXPECT_EQ(answer.header.sequence, question);
    EXPECT_EQ(answer.header.flags, wire::kReply);
  }
  void forget_calls() { driver().reset(); }
  static std::vector<std::string> sets() {
    std::vector<std::string> found;
    for (const std::string& call : driver().calls())
      if (call.starts_with("cuMemsetD8Async")) found.push_back(call.substr(16));
    return found;
  }

  SessionOrders orders_;
};

class ClosedGate : public GateTest, public ::testing::WithParamInterface<Gate> {};

TEST_P(ClosedGate, KeepsACallThatSubmitsAndWhatIsBehindIt) {
  begin();
  orders_.set(GetParam());
  expect_allocated(allocate(100));  // it submits nothing, and nothing is before it
  set(1);
  const uint32_t behind = allocate(200);
  set(2);
  settle();
  EXPECT_THAT(sets(), IsEmpty());
  EXPECT_FALSE(driver().saw("cuMemAlloc 200"));
  orders_.set(Gate::kOpen);
  expect_allocated(behind);
  EXPECT_TRUE(eventually([] { return sets().size() == 2; }));
  EXPECT_THAT(sets(), ElementsAre("1", "2"));
}

// The client waits for the answer to be sure that what it has sent was executed.
TEST_P(ClosedGate, KeepsAPingBehindACallThatWaits) {
  begin();
  orders_.set(GetParam());
  expect_answer(send(wire::kPing), CUDA_SUCCESS);
  set(1);
  const uint32_t ping = send(wire::kPing);
  EXPECT_EQ(next().header.opcode, wire::kAlive);
  settle();
  orders_.set(Gate::kOpen);
  expect_answer(ping, CUDA_SUCCESS);
  EXPECT_THAT(sets(), ElementsAre("1"));
}

TEST_P(ClosedGate, KeepsWhatWasReceivedBeforeItClosed) {
  begin();
  driver().shut("cuMemsetD8Async 5");
  for (unsigned i = 1; i <= 100; ++i) set(i);
  ASSERT_TRUE(eventually([] { return driver().saw("cuMemsetD8Async 5"); }));
  orders_.set(GetParam());
  driver().open("cuMemsetD8Async 5");
  settle();
  EXPECT_THAT(sets(), ElementsAre("1", "2", "3", "4", "5"));
  orders_.set(Gate::kOpen);
  expect_answer(set(101, wire::kWantReply), CUDA_SUCCESS);
  EXPECT_EQ(sets().size(), 101u);
}

TEST_P(ClosedGate, KeepsTheBytesOfACopyForIt) {
  begin();
  orders_.set(GetParam());
  for (const std::string text : {"first", "later"}) {
    send_copy({copy::Location::frame(), device(), {text.size()}, {}, copy::Order::kStream}, 0, 0, 1,
              std::as_bytes(std::span(text)));
  }
  settle();
  EXPECT_FALSE(driver().saw("cuMemcpyHtoDAsync first"));
  orders_.set(Gate::kOpen);
  EXPECT_TRUE(eventually([] { return driver().saw("cuMemcpyHtoDAsync later"); }));
  EXPECT_TRUE(driver().saw("cuMemcpyHtoDAsync first"));
}

TEST_P(ClosedGate, TakesNoMoreFramesThanItHasRoomFor) {
  begin();
  orders_.set(GetParam());
  constexpr size_t kMore = SubmissionGate::kMostFrames + 100;
  for (unsigned i = 0; i < kMore; ++i) set(i % 256);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(sets(), IsEmpty());
  orders_.set(Gate::kOpen);
  expect_answer(set(1, wire::kWantReply), CUDA_SUCCESS);
  EXPECT_EQ(sets().size(), kMore + 1);
}

TEST_P(ClosedGate, OpensAndClosesAtAnyMoment) {
  begin();
  std::atomic<bool> over{false};
  std::thread daemon([this, &over] {
    for (unsigned i = 0; !over; ++i) {
      orders_.set(i % 2 == 0 ? GetParam() : Gate::kOpen);
      std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 900));
    }
    orders_.set(Gate::kOpen);
  });
  for (unsigned round = 0; round < 40; ++round) {
    forget_calls();
    for (unsigned i = 0; i < 50; ++i) set(i);
    expect_answer(set(50, wire::kWantReply), CUDA_SUCCESS);
    std::vector<std::string> expected;
    for (unsigned i = 0; i <= 50; ++i) expected.push_back(std::to_string(i));
    ASSERT_EQ(sets(), expected);
  }
  over = true;
  daemon.join();
}

TEST_P(ClosedGate, EndsWithAClientThatSaysByeBehindWhatWaits) {
  begin();
  orders_.set(GetParam());
  set(1);
  send(wire::kBye, {}, 0, 0);
  settle();
  orders_.set(Gate::kOpen);
  EXPECT_TRUE(end().ok());
  EXPECT_THAT(sets(), ElementsAre("1"));
}

INSTANTIATE_TEST_SUITE_P(Gates, ClosedGate, ::testing::Values(Gate::kClosed, Gate::kShut),
                         [](const auto& each) {
                           return each.param == Gate::kClosed ? "closed" : "shut";
                         });

TEST_F(GateTest, AnAnswerThatReleasesAStreamPassesAClosedGate) {
  begin();
  run_host_function(7);
  orders_.set(Gate::kClosed);
  set(1);
  host_function_returns(7);
  EXPECT_TRUE(eventually(released));
  EXPECT_THAT(sets(), IsEmpty());
}

TEST_F(GateTest, AnAnswerThatReleasesAStreamWaitsAtAShutGate) {
  begin();
  run_host_function(7);
  orders_.set(Gate::kShut);
  host_function_returns(7);
  const uint32_t behind = allocate(100);  // the driver may wait in it for the stream
  settle();
  EXPECT_FALSE(released());
  EXPECT_FALSE(driver().saw("cuMemAlloc 100"));
  orders_.set(Gate::kOpen);
  expect_allocated(behind);
  EXPECT_TRUE(eventually(released));
}

TEST_F(GateTest, WhatWaitedAtAShutGatePassesWhenItIsOnlyClosed) {
  begin();
  run_host_function(7);
  orders_.set(Gate::kShut);
  set(1);
  host_function_returns(7);
  settle();
  EXPECT_FALSE(released());
  orders_.set(Gate::kClosed);
  EXPECT_TRUE(eventually(released));
  EXPECT_THAT(sets(), IsEmpty());
  orders_.set(Gate::kOpen);
  EXPECT_TRUE(eventually([] { return sets().size() == 1; }));
}

TEST_F(GateTest, BytesOfAHeldCopyReleaseItsStreamWithinAWindow) {
  begin();
  fetch(5, 3000);
  EXPECT_EQ(notice().opcode, wire::kFetch);
  driver().shut("event");
  orders_.set(Gate::kShut);
  fetched(5, 0, std::vector<std::byte>(3000, std::byte{9}));
  settle();
  EXPECT_EQ(opened(), 0u);
  orders_.set(Gate::kOpen);
  EXPECT_TRUE(eventually([] { return opened() == 1; }));
  EXPECT_EQ(static_cast<const std::byte*>(driver().source.load())[2999], std::byte{9});
  driver().open("event");
}

// The function has returned before its stream has the copy.
TEST_F(GateTest, ACopyThatWaitsIsAmendedBeforeTheFunctionReturns) {
  begin();
  run_host_function(7);
  orders_.set(Gate::kClosed);
  set(1);
  amended(5, "abcd");
  amend(5, "bcde");
  host_function_returns(7);
  EXPECT_TRUE(eventually(released));
  EXPECT_FALSE(driver().saw("cuMemcpyHtoDAsync bcde"));
  driver().shut("event");
  orders_.set(Gate::kOpen);
  EXPECT_TRUE(eventually([] { return driver().saw("cuMemcpyHtoDAsync bcde"); }));
  EXPECT_EQ(source_text(4), "bcde");
  expect_answer(amend(6, "efgh", wire::kWantReply), CUDA_SUCCESS);  // of a copy that is over
  expect_answer(amended(6, "ijkl", wire::kWantReply), CUDA_SUCCESS);
  EXPECT_EQ(source_text(4), "ijkl") << "nothing waited";
  driver().open("event");
}

TEST_F(GateTest, BytesBesideTheCallsReleaseAStreamWithinAWindow) {
  with_bulk_connection_ = true;
  begin();
  fetch(5, 3000);
  EXPECT_EQ(notice().opcode, wire::kFetch);
  driver().shut("event");
  orders_.set(Gate::kShut);
  alignas(8) std::byte body[64];
  wire::SlotMessageBuilder builder(std::span<std::byte>(body, sizeof body));
  auto params = builder.initRoot<schema::FgFetchedParams>();
  params.setId(5);
  params.setBytes(3000);
  wire::FrameHeader header;
  header.opcode = schema::op_fgFetched;
  header.sequence = 1;
  header.body_bytes = static_cast<uint32_t>(builder.used_bytes());
  header.bulk_bytes = 3000;
  const auto limit = transport::Clock::now() + std::chrono::seconds(20);
  auto slot = beside_->reserve(sizeof header + header.body_bytes, limit);
  ASSERT_TRUE(slot.ok());
  std::memcpy(slot->data(), &header, sizeof header);
  std::memcpy(slot->data() + sizeof header, body, header.body_bytes);
  const std::vector<std::byte> bytes(3000, std::byte{9});
  const std::span<const std::byte> bulk = bytes;
  ASSERT_TRUE(beside_->commit(slot->size(), std::span(&bulk, 1), limit).ok());
  ASSERT_TRUE(beside_->flush(limit).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  settle();
  EXPECT_EQ(opened(), 0u);
  orders_.set(Gate::kOpen);
  EXPECT_EQ(notice().opcode, wire::kLanded);
  EXPECT_EQ(opened(), 1u);
  driver().open("event");
}

TEST_F(GateTest, AnAcknowledgedDeliveryReleasesItsStreamWithinAWindow) {
  begin();
  deliver(7, 1000, static_cast<int>(copy::Hold::kUntilDelivered));
  EXPECT_EQ(notice().opcode, wire::kDelivery);
  orders_.set(Gate::kShut);
  const uint32_t acknowledged = delivered(7);
  settle();
  EXPECT_EQ(opened(), 0u);
  orders_.set(Gate::kOpen);
  expect_answer(acknowledged, CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] { return opened() == 1; }));
}

}  // namespace
}  // namespace fargpu::server
