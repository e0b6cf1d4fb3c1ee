// What the order of a copy's frame makes of the frames after it.
#include <gmock/gmock.h>

#include "common/copy/copy.h"
#include "common/wire/control.h"
#include "generated/schema/event.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "generated/schema/stream_memory_operations.capnp.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

using copy::Location;
using copy::Order;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr uint64_t kLegacy = 1;
constexpr uint64_t kStream = rpc::make_handle(rpc::HandleKind::kStream, 1);
constexpr uint64_t kEvent = rpc::make_handle(rpc::HandleKind::kEvent, 1);

FakeDriver& driver() { return FakeDriver::get(); }

// Context 1 with a stream of its own; nothing that is recorded is ever done before open().
class OrderingCopies : public ExecutorTest {
 protected:
  void begin() {
    start();
    enter();
    expect_answer(send<schema::CuStreamCreateParams>(schema::op_cuStreamCreate,
                                                     [](auto p) { p.setPhStream(kStream); }),
                  CUDA_SUCCESS);
    driver().shut("event");
  }
  uint32_t send_copy_with(Order order) {
    const std::string text = "bytes";
    return send_copy({Location::frame(), Location::device({0x7000}), {text.size()}, {}, order},
                     kLegacy, wire::kWantReply, 1, std::as_bytes(std::span(text)));
  }
  void copy(Order order) { expect_answer(send_copy_with(order), CUDA_SUCCESS); }
  void work(uint64_t stream) {
    expect_answer(send<schema::CuMemsetD8AsyncParams>(schema::op_cuMemsetD8Async,
                                                      [&](auto p) {
                                                        p.setDstDevice(0x7000);
                                                        p.setN(1);
                                                        p.setHStream(stream);
                                                      }),
                  CUDA_SUCCESS);
  }
  uint32_t query(uint64_t stream) {
    return send<schema::CuStreamQueryParams>(schema::op_cuStreamQuery,
                                             [&](auto p) { p.setHStream(stream); });
  }
  size_t waits() {
    size_t count = 0;
    for (const std::string& call : driver().calls())
      count += call.find(" waits for ") != std::string::npos ? 1 : 0;
    return count;
  }
};

TEST_F(OrderingCopies, WorkInAnotherStreamWaitsForACopyThatHasReturned) {
  begin();
  copy(Order::kLaterWork);
  work(kLegacy);
  EXPECT_EQ(waits(), 0u);
  work(kStream);
  work(kStream);
  EXPECT_EQ(waits(), 1u);
  EXPECT_THAT(driver().calls(), Contains("20480 waits for 1"));
}

TEST_F(OrderingCopies, AQuestionAboutAStreamDoesNotMakeItWait) {
  begin();
  copy(Order::kLaterWork);
  const uint32_t flags = send<schema::CuStreamGetFlagsParams>(
      schema::op_cuStreamGetFlags, [](auto p) { p.setHStream(kStream); });
  EXPECT_EQ(next().header.sequence, flags);
  expect_answer(query(kStream), CUDA_SUCCESS);
  expect_answer(
      send<schema::FgQueueMarkParams>(schema::op_fgQueueMark, [](auto p) { p.setStream(kStream); }),
      CUDA_SUCCESS);
  EXPECT_EQ(waits(), 0u);
  work(kStream);
  EXPECT_EQ(waits(), 1u);
}

TEST_F(OrderingCopies, AnAsynchronousCopyHoldsUpItsStreamAlone) {
  begin();
  copy(Order::kStream);
  work(kStream);
  EXPECT_EQ(waits(), 0u);
  EXPECT_FALSE(driver().saw("cuEventCreate"));
}

TEST_F(OrderingCopies, WhatIsDoneNeedsNoWait) {
  begin();
  copy(Order::kLaterWork);
  driver().open("event");
  work(kStream);
  EXPECT_EQ(waits(), 0u);
}

// What the application submits to let the copy go on must not wait for the copy.
TEST_F(OrderingCopies, BehindAHostFunctionThereIsNoFence) {
  begin();
  expect_answer(send<schema::FgHostCallParams>(schema::op_fgHostCall,
                                               [](auto p) {
                                                 p.setStream(kLegacy);
                                                 p.setId(5);
                                               }),
                CUDA_SUCCESS);
  EXPECT_EQ(next().header.opcode, static_cast<uint16_t>(wire::kHostCall));
  copy(Order::kLaterWork);
  copy(Order::kReturned);
  work(kStream);
  EXPECT_EQ(waits(), 0u);
}

// Contents of managed memory, for work in another stream than that of the function.
TEST_F(OrderingCopies, ACopyOfOursHasItsFenceBesideAHostFunction) {
  begin();
  expect_answer(send<schema::FgHostCallParams>(schema::op_fgHostCall,
                                               [](auto p) {
                                                 p.setStream(kLegacy);
                                                 p.setId(5);
                                               }),
                CUDA_SUCCESS);
  EXPECT_EQ(next().header.opcode, static_cast<uint16_t>(wire::kHostCall));
  copy(Order::kOwnStream);
  work(kStream);
  EXPECT_EQ(waits(), 1u);
}

TEST_F(OrderingCopies, BehindAWaitForAValueThereIsNoFence) {
  begin();
  expect_answer(send<schema::CuStreamWaitValue32V2Params>(schema::op_cuStreamWaitValue32_v2,
                                                          [](auto p) { p.setStream(kLegacy); }),
                CUDA_SUCCESS);
  copy(Order::kLaterWork);
  work(kStream);
  EXPECT_EQ(waits(), 0u);
  driver().open("event");  // the wait is over
  expect_silence();
  EXPECT_TRUE(eventually([&] {
    driver().shut("event");
    copy(Order::kLaterWork);
    work(kStream);
    const bool fenced = waits() > 0;
    driver().open("event");
    expect_silence();
    return fenced;
  }));
}

TEST_F(OrderingCopies, AQueryDoesNotSayThatAReturnedCopyIsUnderWay) {
  begin();
  driver().shut("cuCtxSynchronize");  // streams are busy
  copy(Order::kReturned);
  const uint32_t asked = query(kLegacy);
  expect_silence();
  driver().open("cuCtxSynchronize");
  driver().open("event");
  expect_answer(asked, CUDA_SUCCESS);
}

TEST_F(OrderingCopies, AQueryEndsWithTheCopiesBeforeIt) {
  begin();
  driver().shut("cuCtxSynchronize");
  copy(Order::kReturned);
  const uint32_t asked = query(kLegacy);
  expect_silence();
  driver().open("event");
  expect_answer(asked, CUDA_ERROR_NOT_READY);  // busy with something else
}

TEST_F(OrderingCopies, AQueryTellsTheTruthAboutOtherCopies) {
  begin();
  driver().shut("cuCtxSynchronize");
  copy(Order::kLaterWork);
  expect_answer(query(kLegacy), CUDA_ERROR_NOT_READY);
}

TEST_F(OrderingCopies, AnEventQueryWaitsLikewise) {
  begin();
  expect_answer(send<schema::CuEventCreateParams>(schema::op_cuEventCreate,
                                                  [](auto p) { p.setPhEvent(kEvent); }),
                CUDA_SUCCESS);
  copy(Order::kReturned);
  const uint32_t asked = send<schema::CuEventQueryParams>(schema::op_cuEventQuery,
                                                          [](auto p) { p.setHEvent(kEvent); });
  expect_silence();
  driver().open("event");
  expect_answer(asked, CUDA_SUCCESS);
}

TEST_F(OrderingCopies, AQueryPutsNothingIntoItsStream) {
  begin();
  copy(Order::kReturned);
  expect_answer(query(kStream), CUDA_SUCCESS);
  EXPECT_EQ(waits(), 0u);
}

TEST_F(OrderingCopies, AnOrderThatDoesNotExistEndsTheSession) {
  begin();
  send_copy_with(static_cast<Order>(4));
  const Status status = end();
  EXPECT_EQ(status.code(), StatusCode::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("fgCopy: an order that does not exist"));
}

TEST_F(OrderingCopies, ACopyThatNoRouteCarriesEndsTheSession) {
  using End = copy::Completion::Kind;
  const Location device = Location::device({0x7000}), frame = Location::frame();
  const Location shared = Location::shared({0x9000}), remote = Location::in({0x9000, 64, 1}, 0);
  const copy::Copy cases[] = {
      {frame, device, {5}, {}},  // it brings no bytes
      {frame, device, {5}, {End::kReply}},
      {frame, device, {5}, {End::kWord}},
      {frame, device, {5}, {End::kNotice}},
      {device, frame, {5}, {}},
      {device, frame, {5}, {End::kReply}},  // another call waits for the reply
      {shared, device, {5}, {End::kNotice}},
      {device, shared, {5}, {End::kFollow}},
      {frame, device, {5}, {End::kAmended}},  // it brings no bytes
      {device, frame, {5}, {End::kAmended}},
      {shared, device, {5}, {End::kAmended}},
      {remote, device, {5}, {End::kWord}},
      {remote, device, {5}, {End::kFollow}},
      {device, remote, {5}, {}},
      {device, remote, {(16u << 20) + 1}, {End::kNotice}},
      {device, device, {5}, {}},
  };
  for (const copy::Copy& wrong : cases) {
    begin();
    send_copy(wrong, kLegacy);
    const Status status = end();
    EXPECT_EQ(status.code(), StatusCode::kProtocol) << &wrong - cases;
    EXPECT_THAT(status.message(), HasSubstr("fgCopy: "));
    TearDown();
  }
}

TEST_F(OrderingCopies, ACopyThatCannotBeOrderedFails) {
  begin();
  driver().fail("cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY);
  expect_answer(send_copy_with(Order::kLaterWork), CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace fargpu::server
