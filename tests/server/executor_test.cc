// The executor with a driver made by hand: order, replies, errors, what ends a session, and that
// nothing holds up the frames of others.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "common/host/sha256.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/image_piece.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/event.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "generated/schema/stream_ordered_memory.capnp.h"
#include "server/object/server_support.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FakeDriver& driver() { return FakeDriver::get(); }

constexpr uint64_t kEvent = rpc::make_handle(rpc::HandleKind::kEvent, 7);
constexpr uint64_t kStream = rpc::make_handle(rpc::HandleKind::kStream, 8);

class Executing : public ExecutorTest {
 protected:
  uint32_t set(uint8_t value, uint16_t flags, uint16_t context = 1) {
    return send<schema::CuMemsetD8AsyncParams>(
        schema::op_cuMemsetD8Async,
        [&](auto p) {
          p.setDstDevice(0x7000);
          p.setUc(value);
          p.setN(1);
        },
        flags, context);
  }
  uint32_t allocate(uint64_t bytes) {
    return send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                            [&](auto p) { p.setBytesize(bytes); });
  }
  uint32_t free_memory() {
    return send<schema::CuMemFreeV2Params>(schema::op_cuMemFree_v2,
                                           [](auto p) { p.setDptr(0x7000); });
  }
  uint32_t synchronise_stream() {
    return send<schema::CuStreamSynchronizeParams>(schema::op_cuStreamSynchronize, [](auto) {});
  }
  uint32_t synchronise_context() { return send(schema::op_cuCtxSynchronize); }
  uint32_t create_event() {
    return send<schema::CuEventCreateParams>(schema::op_cuEventCreate,
                                             [](auto p) { p.setPhEvent(kEvent); });
  }
  uint32_t record_event() {
    return send<schema::CuEventRecordParams>(schema::op_cuEventRecord,
                                             [](auto p) { p.setHEvent(kEvent); });
  }
  uint32_t synchronise_event() {
    return send<schema::CuEventSynchronizeParams>(schema::op_cuEventSynchronize,
                                                  [](auto p) { p.setHEvent(kEvent); });
  }
  // For the first record, which lasts until "event 1" is opened.
  uint32_t wait_for_event_that_is_shut() {
    expect_answer(create_event(), CUDA_SUCCESS);
    driver().shut("event 1");
    expect_answer(record_event(), CUDA_SUCCESS);
    return synchronise_event();
  }
  uint32_t destroy_event() {
    return send<schema::CuEventDestroyV2Params>(schema::op_cuEventDestroy_v2,
                                                [](auto p) { p.setHEvent(kEvent); });
  }
  uint32_t host_call(uint64_t id) {
    return send<schema::FgHostCallParams>(schema::op_fgHostCall, [&](auto p) { p.setId(id); });
  }
  uint32_t host_call_done(uint64_t id, uint16_t flags = 0) {
    return send<schema::HostCallDone>(
        wire::kHostCallDone, [&](auto p) { p.setId(id); }, flags, 0);
  }
  void expect_cancelled(uint64_t id) {
    const Answer notice = next();
    EXPECT_EQ(notice.header.opcode, wire::kHostCall);
    wire::SegmentReader reader(notice.body);
    const auto call = reader.getRoot<schema::HostCall>();
    EXPECT_EQ(call.getId(), id);
    EXPECT_TRUE(call.getCancelled());
  }
  uint64_t allocated() {
    const Answer answer = next();
    EXPECT_EQ(answer.header.result, CUDA_SUCCESS);
    wire::SegmentReader reader(answer.body);
    return reader.getRoot<schema::CuMemAllocV2Results>().getDptr();
  }
};

TEST_F(Executing, CallsHappenInTheOrderOfFramesAndOnlyWaitedOnesAreAnswered) {
  start();
  enter();
  for (uint8_t i = 0; i < 5; ++i) set(i, 0);
  allocate(100);
  EXPECT_EQ(allocated(), 0x7000u);
  EXPECT_THAT(
      driver().calls(),
      ElementsAre("cuDevicePrimaryCtxRetain", "cuMemsetD8Async 0", "cuMemsetD8Async 1",
                  "cuMemsetD8Async 2", "cuMemsetD8Async 3", "cuMemsetD8Async 4", "cuMemAlloc 100"));
}

TEST_F(Executing, AnErrorThatNobodyWaitsForIsSentAsANotice) {
  start();
  enter();
  driver().fail("cuMemsetD8Async 7", CUDA_ERROR_INVALID_VALUE);
  const uint32_t failed = set(7, 0);
  EXPECT_EQ(result(failed, wire::kReply | wire::kAsyncError), CUDA_ERROR_INVALID_VALUE);
  expect_answer(set(8, wire::kWantReply), CUDA_SUCCESS);  // the session goes on
}

TEST_F(Executing, AReplyThatIsWaitedForComesWhenTheStreamGetsThere) {
  start();
  enter();
  driver().shut("event");
  const uint32_t waiting = synchronise_stream();
  expect_answer(set(1, wire::kWantReply), CUDA_SUCCESS);  // later frames overtake it
  expect_silence();
  driver().open("event");
  expect_answer(waiting, CUDA_SUCCESS);
}

TEST_F(Executing, DeferredRepliesBringErrorsOfTheWork) {
  start();
  enter();
  driver().fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_answer(synchronise_stream(), CUDA_ERROR_ILLEGAL_ADDRESS);
  driver().fail("cuCtxSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_answer(synchronise_context(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Executing, AFailingContextIsTheAnswer) {
  start();
  enter();
  expect_answer(set(1, wire::kWantReply, 99), CUDA_ERROR_INVALID_CONTEXT);
  expect_answer(send(schema::op_cuCtxSynchronize, {}, wire::kWantReply, 99),
                CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_FALSE(driver().saw("cuMemsetD8Async 1"));
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  driver().fail("cuCtxSetCurrent", CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_answer(set(2, wire::kWantReply), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_FALSE(driver().saw("cuMemsetD8Async 2"));
}

TEST_F(Executing, TheQuotaIsCheckedBeforeTheDriverIsAsked) {
  start(false, 1000);
  enter();
  allocate(800);
  allocated();
  expect_answer(allocate(300), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(driver().saw("cuMemAlloc 300"));
  expect_answer(free_memory(), CUDA_SUCCESS);
  allocate(300);
  allocated();
}

TEST_F(Executing, AnAllocationFromNoPoolIsRefused) {
  start(false, 1000);
  enter();
  expect_answer(send<schema::CuMemAllocFromPoolAsyncParams>(schema::op_cuMemAllocFromPoolAsync,
                                                            [](auto p) { p.setBytesize(800); }),
                CUDA_ERROR_INVALID_VALUE);
  expect_answer(allocate(800), CUDA_SUCCESS);
}

TEST_F(Executing, BulkBytesReachTheDriver) {
  start();
  enter();
  const std::string text = "seven!!";
  expect_answer(
      send_copy({copy::Location::frame(), copy::Location::device({0x7000}), {text.size()}, {}}, 0,
                wire::kWantReply, 1, std::as_bytes(std::span(text))),
      CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuMemcpyHtoDAsync seven!!"));
}

TEST_F(Executing, PingIsAnsweredAndByeEnds) {
  start();
  expect_answer(send(wire::kPing), CUDA_SUCCESS);
  send(wire::kBye, {}, 0);
  EXPECT_TRUE(end().ok());
}

TEST_F(Executing, AClientThatGoesAwayIsLost) {
  start();
  enter();
  driver().shut("event");
  synchronise_stream();  // also with something pending
  expect_silence();
  hang_up();
  EXPECT_EQ(end().code(), StatusCode::kLost);
}

TEST_F(Executing, WhatBreaksTheProtocolEndsTheSession) {
  const std::vector<std::byte> garbage(64, std::byte{0xff});
  const std::vector<std::byte> bulk(16);
  struct Case {
    const char* what;
    const char* said;
    std::function<void()> act;
  };
  const Case cases[] = {
      {"a second hello", "control opcode 1", [&] { send(wire::kHello); }},
      {"bulk of a call without", "cuMemAlloc_v2",
       [&] { send(schema::op_cuMemAlloc_v2, {}, wire::kWantReply, 1, bulk); }},
      {"bulk of a ping", "16 bytes", [&] { send(wire::kPing, {}, wire::kWantReply, 0, bulk); }},
      {"malformed body", "cuMemAlloc_v2", [&] { send(schema::op_cuMemAlloc_v2, garbage); }},
      {"malformed body of a hand-written call", "cuStreamSynchronize",
       [&] { send(schema::op_cuStreamSynchronize, garbage); }},
      {"malformed hostCallDone", "hostCallDone", [&] { send(wire::kHostCallDone, garbage, 0); }},
      {"flags of a server", "0x1", [&] { send(wire::kPing, {}, wire::kReply); }},
      {"a notice from a client", "0x6",
       [&] { send(wire::kPing, {}, wire::kNotice | wire::kWantReply); }},
      {"a host call that does not run", "host call 5", [&] { host_call_done(5); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    start();
    c.act();
    const Status status = end();
    EXPECT_EQ(status.code(), StatusCode::kProtocol);
    EXPECT_THAT(status.message(), HasSubstr(c.said));
    TearDown();
  }
}

// Of a newer client.
TEST_F(Executing, WhatIsNotKnownIsRefusedAndTheSessionGoesOn) {
  const std::vector<std::byte> body(64), bulk(3000);
  start();
  for (const uint16_t opcode : {uint16_t{65000}, uint16_t{60}, schema::op_cuDeviceGetCount}) {
    SCOPED_TRACE(opcode);
    expect_answer(send(opcode, body), CUDA_ERROR_NOT_SUPPORTED);
    expect_answer(send(opcode, body, wire::kWantReply, 1, bulk), CUDA_ERROR_NOT_SUPPORTED);
    const uint32_t nobody_waits = send(opcode, body, 0, 1, bulk);
    const Answer answer = next();
    EXPECT_EQ(answer.header.sequence, nobody_waits);
    EXPECT_EQ(answer.header.flags, wire::kReply | wire::kAsyncError);
    EXPECT_EQ(answer.header.result, CUDA_ERROR_NOT_SUPPORTED);
  }
  expect_answer(send(wire::kPing), CUDA_SUCCESS);
}

TEST_F(Executing, ANoticeThatTheClientDoesNotKnowIsNotSent) {
  client_control_ = ~(uint64_t{1} << wire::kHostCall);
  start();
  enter();
  expect_answer(host_call(17), CUDA_SUCCESS);
  ASSERT_TRUE(eventually([] { return driver().saw("host function begins"); }));
  // Nothing else tells that the gate has been reached: the notice would.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  expect_silence();
  // Its thread must not outlive the session.
  expect_answer(host_call_done(17, wire::kWantReply), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] { return driver().saw("host function returned"); }));
}

TEST_F(Executing, ANoticeOfItsOwnAccordIsNotSentEither) {
  client_control_ = ~(uint64_t{1} << wire::kAlive);
  start();
  say_alive();
  expect_silence();
}

TEST_F(Executing, ANoticeOfItsOwnAccordIsSentWhenItIsKnown) {
  start();
  EXPECT_TRUE(eventually([&] {
    say_alive();
    return hears_something();
  }));
  EXPECT_EQ(next().header.opcode, wire::kAlive);
}

TEST_F(Executing, AHostFunctionRunsInTheClientAndHoldsItsStream) {
  start();
  enter();
  expect_answer(host_call(17), CUDA_SUCCESS);
  const Answer notice = next();
  EXPECT_EQ(notice.header.opcode, wire::kHostCall);
  EXPECT_EQ(notice.header.flags, wire::kNotice);
  EXPECT_EQ(notice.header.sequence, 0u);
  wire::SegmentReader reader(notice.body);
  EXPECT_EQ(reader.getRoot<schema::HostCall>().getId(), 17u);
  expect_silence();
  EXPECT_FALSE(driver().saw("host function returned"));
  expect_answer(host_call_done(17, wire::kWantReply), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] { return driver().saw("host function returned"); }));
  host_call_done(17);  // once
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(Executing, AHostFunctionThatTheDriverRefusesIsCancelled) {
  start();
  enter();
  driver().fail("cuLaunchHostFunc", CUDA_ERROR_ILLEGAL_ADDRESS);
  const uint32_t refused = host_call(3);
  expect_cancelled(3);
  expect_answer(refused, CUDA_ERROR_ILLEGAL_ADDRESS);
  const uint32_t nowhere = send<schema::FgHostCallParams>(
      schema::op_fgHostCall, [](auto p) { p.setId(4); }, wire::kWantReply, 99);
  expect_cancelled(4);
  expect_answer(nowhere, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Executing, AHostFunctionInAContextThatFailedIsCancelled) {
  start();
  enter();
  driver().fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_answer(host_call(3), CUDA_SUCCESS);
  expect_cancelled(3);  // by itself: nobody asks the worker for anything
  expect_silence();
}

TEST_F(Executing, AHostFunctionGoesWithItsContext) {
  start();
  enter();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  driver().fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  send<schema::FgHostCallParams>(
      schema::op_fgHostCall, [](auto p) { p.setId(3); }, 0, 300);
  const uint32_t ending = send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                               [](auto p) { p.setContext(300); });
  expect_cancelled(3);
  expect_answer(ending, CUDA_SUCCESS);
  host_call_done(3);
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(Executing, PrintedTextComesBeforeTheReplyThatWaitedForIt) {
  start(true);
  enter();
  ASSERT_EQ(::write(output_, "hello\n", 6), 6);
  expect_silence();  // nothing but a synchronisation brings it
  const uint32_t waiting = synchronise_stream();
  const Answer text = next();
  EXPECT_EQ(text.header.opcode, wire::kOutput);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.bulk.data()), text.bulk.size()),
            "hello\n");
  expect_answer(waiting, CUDA_SUCCESS);
  ASSERT_EQ(::write(output_, "bye", 3), 3);
  send(wire::kBye, {}, 0);
  const Answer last = next();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(last.bulk.data()), last.bulk.size()), "bye");
  EXPECT_TRUE(end().ok());
}

TEST_F(Executing, TheDriverIsNotAskedToWriteOutWhereNoCodePrints) {
  start();
  enter();
  expect_answer(synchronise_stream(), CUDA_SUCCESS);
  EXPECT_FALSE(driver().saw("cuEventSynchronize"));
}

TEST_F(Executing, TheDriverIsAskedToWriteOutWhereCodeMayPrint) {
  start(true);
  enter();
  expect_answer(synchronise_stream(), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuEventSynchronize"));
}

TEST_F(Executing, WhatTheDriverWritesToStderrComesBeforeTheErrorThatItExplains) {
  start(true);
  enter();
  ASSERT_EQ(::write(errors_, "a.cu:1: failed\n", 15), 15);
  expect_answer(set(1, wire::kWantReply), CUDA_SUCCESS);
  const uint32_t failing = set(1, wire::kWantReply, 99);
  const Answer text = next();
  EXPECT_EQ(text.header.opcode, wire::kErrorOutput);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.bulk.data()), text.bulk.size()),
            "a.cu:1: failed\n");
  expect_answer(failing, CUDA_ERROR_INVALID_CONTEXT);
}

TEST(OutputCapture, DropsTheOldestOfAFloodAndSaysSo) {
  const int ours = ::dup(STDERR_FILENO);
  auto capture = OutputCapture::install(STDERR_FILENO);
  const int written = ::dup(STDERR_FILENO);
  ::dup2(ours, STDERR_FILENO);
  ASSERT_TRUE(capture.ok());
  const std::string line(1 << 20, 'x');
  for (uint64_t i = 0; i < OutputCapture::kMostWaiting >> 20; ++i)
    ASSERT_EQ(::write(written, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ASSERT_EQ(::write(written, "the end", 7), 7);
  const std::vector<std::byte> first = capture->take(100);
  const std::string text(reinterpret_cast<const char*>(first.data()), first.size());
  EXPECT_EQ(text.substr(0, text.find('x')), "fargpu: 7 bytes of output were dropped\n");
  EXPECT_EQ(text.size(), 100u);
  std::string all = text;
  while (true) {
    const std::vector<std::byte> piece = capture->take(1 << 20);
    if (piece.empty()) break;
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  EXPECT_EQ(all.size() - text.find('x'), OutputCapture::kMostWaiting);
  EXPECT_EQ(all.substr(all.size() - 8), "xthe end");
  ::close(written);
  ::close(ours);
}

// A driver that waits inside a call holds up nobody but who asked.
TEST_F(Executing, CallsThatWaitInTheDriverHoldUpNobody) {
  start();
  enter();
  driver().shut("cuMemFree");
  driver().shut("event");
  const uint32_t freeing = free_memory(), waiting = synchronise_stream();
  ASSERT_TRUE(eventually([] { return driver().saw("cuMemFree"); }));
  expect_answer(set(1, wire::kWantReply), CUDA_SUCCESS);
  expect_answer(synchronise_context(), CUDA_SUCCESS);
  const uint32_t second = free_memory();
  EXPECT_TRUE(eventually([] { return driver().count("cuMemFree") == 2; }))
      << "a wait is queued behind another one";
  expect_silence();
  driver().open("event");
  expect_answer(waiting, CUDA_SUCCESS);
  driver().open("cuMemFree");
  Answer answers[] = {next(), next()};
  std::sort(std::begin(answers), std::end(answers),
            [](auto& a, auto& b) { return a.header.sequence < b.header.sequence; });
  EXPECT_EQ(answers[0].header.sequence, freeing);
  EXPECT_EQ(answers[1].header.sequence, second);
}

// A busy context is polled at first and then waited for on a helper thread: calls go on during
// both.
TEST_F(Executing, ASynchronisedContextHoldsUpNobody) {
  start();
  enter();
  driver().shut("cuCtxSynchronize");
  const uint32_t waiting = synchronise_context();
  expect_answer(set(1, wire::kWantReply), CUDA_SUCCESS);
  ASSERT_TRUE(eventually([] { return driver().saw("cuCtxSynchronize"); }))
      << "the wait is never left to a helper thread";
  expect_answer(set(2, wire::kWantReply), CUDA_SUCCESS);
  expect_silence();
  driver().open("cuCtxSynchronize");
  expect_answer(waiting, CUDA_SUCCESS);
}

// A driver makes it, and takes memory for it, when somebody asks.
TEST_F(Executing, ThePerThreadStreamIsAskedOnceItIsUsed) {
  constexpr auto kQuestion = "cuStreamQuery of the per-thread stream";
  start();
  enter();
  expect_answer(synchronise_context(), CUDA_SUCCESS);
  EXPECT_FALSE(driver().saw(kQuestion));
  expect_answer(send<schema::CuMemsetD8AsyncParams>(schema::op_cuMemsetD8Async,
                                                    [](auto p) {
                                                      p.setDstDevice(0x7000);
                                                      p.setN(1);
                                                      p.setHStream(2);
                                                    }),
                CUDA_SUCCESS);
  expect_answer(synchronise_context(), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw(kQuestion));
}

TEST_F(Executing, AWaitForAnEventIsForWhatItHeldAtTheCall) {
  start();
  enter();
  const uint32_t first = wait_for_event_that_is_shut();
  driver().shut("event 2");
  expect_answer(record_event(), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuEventRecord 2")) << "the wait now lasts until the second record";
  const uint32_t second = synchronise_event();
  expect_silence();
  driver().open("event 1");
  expect_answer(first, CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuEventDestroy 1"));
  expect_silence();
  driver().open("event 2");
  expect_answer(second, CUDA_SUCCESS);
  // Nobody waits: the event stays the same.
  expect_answer(record_event(), CUDA_SUCCESS);
  EXPECT_EQ(driver().count("cuEventRecord 2"), 2u);
  EXPECT_EQ(driver().count("cuEventCreate"), 2u);
}

TEST_F(Executing, ARecordThatFailsLeavesAWaitedEventAsItIs) {
  start();
  enter();
  const uint32_t waiting = wait_for_event_that_is_shut();
  driver().fail("cuEventRecord 2", CUDA_ERROR_INVALID_HANDLE);
  expect_answer(record_event(), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(driver().saw("cuEventDestroy 2"));
  const uint32_t another = synchronise_event();
  expect_silence();
  driver().open("event 1");
  // Asked about one after the other: the later one may be the first that is seen to be over.
  for (int i = 0; i < 2; ++i) {
    const Answer answer = next();
    EXPECT_TRUE(answer.header.sequence == waiting || answer.header.sequence == another);
    EXPECT_EQ(answer.header.result, CUDA_SUCCESS);
  }
  EXPECT_FALSE(driver().saw("cuEventDestroy 1"));
}

TEST_F(Executing, ALaunchMayRecordAWaitedEventTwice) {
  start();
  enter();
  const uint32_t waiting = wait_for_event_that_is_shut();
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attributes[0].value.programmaticEvent.event = reinterpret_cast<CUevent>(kEvent);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[1].value.launchCompletionEvent.event = reinterpret_cast<CUevent>(kEvent);
  expect_answer(
      send<schema::FgLaunchParams>(schema::op_fgLaunch,
                                   [&](auto p) {
                                     p.setKind(2);
                                     p.setAttributeCount(2);
                                     p.setAttributes(as_data(attributes, sizeof attributes));
                                   }),
      CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuEventDestroy 2") || driver().saw("cuEventDestroy 3"))
      << "one of the two successors is the event, the other one goes";
  expect_silence();
  driver().open("event 1");
  expect_answer(waiting, CUDA_SUCCESS);
  expect_answer(synchronise_event(), CUDA_SUCCESS);
}

TEST_F(Executing, AnEventThatIsWaitedForGoesAfterTheWait) {
  start();
  enter();
  const uint32_t waiting = wait_for_event_that_is_shut();
  expect_answer(destroy_event(), CUDA_SUCCESS);
  expect_answer(synchronise_event(), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_FALSE(driver().saw("cuEventDestroy 1"));
  driver().open("event 1");
  expect_answer(waiting, CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] { return driver().saw("cuEventDestroy 1"); }));
}

// One client's thread sends without end; another one waits.
TEST_F(Executing, FramesThatKeepComingDoNotHoldUpWhatIsPending) {
  constexpr size_t kFrames = 200;
  start();
  enter();
  driver().slow("cuMemsetD8Async 9", std::chrono::milliseconds(5));
  driver().shut("event");
  const uint32_t waiting = synchronise_stream();
  for (size_t i = 0; i < kFrames; ++i) set(9, 0);
  driver().open("event");
  expect_answer(waiting, CUDA_SUCCESS);
  EXPECT_LT(driver().count("cuMemsetD8Async 9"), kFrames / 2);
}

TEST_F(Executing, AQueueMarkIsAnsweredWhenTheStreamGetsThere) {
  start();
  enter();
  const auto mark = [&](uint64_t ticket, uint16_t context) {
    return send<schema::FgQueueMarkParams>(
        schema::op_fgQueueMark, [&](auto p) { p.setTicket(ticket); }, wire::kWantReply, context);
  };
  const auto expect_reached = [&](uint64_t ticket) {
    const Answer notice = next();
    EXPECT_EQ(notice.header.opcode, wire::kQueueReached);
    EXPECT_EQ(notice.header.flags, wire::kNotice);
    wire::SegmentReader reader(notice.body);
    EXPECT_EQ(reader.getRoot<schema::QueueReached>().getTicket(), ticket);
  };
  driver().shut("event");
  expect_answer(mark(7, 1), CUDA_SUCCESS);
  expect_silence();
  driver().open("event");
  expect_reached(7);
  // Also when there is nothing to wait for: somebody may be waiting for the answer.
  const uint32_t nowhere = mark(8, 99);
  expect_reached(8);
  expect_answer(nowhere, CUDA_ERROR_INVALID_CONTEXT);
  driver().fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_answer(mark(9, 1), CUDA_SUCCESS);
  expect_reached(9);
}

// Its work still belongs to the context.
TEST_F(Executing, ADestroyedStreamThatWorksIsWaitedForWithoutHoldingUpAnybody) {
  start();
  enter();
  expect_answer(send<schema::CuStreamCreateParams>(schema::op_cuStreamCreate,
                                                   [](auto p) { p.setPhStream(kStream); }),
                CUDA_SUCCESS);
  const auto destroy = [&] {
    return send<schema::CuStreamDestroyV2Params>(schema::op_cuStreamDestroy_v2,
                                                 [](auto p) { p.setHStream(kStream); });
  };
  driver().shut("created stream");
  driver().shut("event");
  expect_answer(destroy(), CUDA_SUCCESS);
  expect_answer(destroy(), CUDA_ERROR_INVALID_HANDLE);
  const uint32_t waiting = synchronise_context();
  std::this_thread::sleep_for(4 * Completion::kPolledTime);  // polled at first, then left to others
  expect_silence();
  EXPECT_FALSE(driver().saw("cuStreamDestroy"));
  driver().open("created stream");
  driver().open("event");
  expect_answer(waiting, CUDA_SUCCESS);
  // Also when nobody asks for it.
  EXPECT_TRUE(eventually([] { return driver().saw("cuStreamDestroy"); }));
  expect_answer(synchronise_context(), CUDA_SUCCESS);
  EXPECT_EQ(driver().count("cuStreamDestroy"), 1u);
}

TEST_F(Executing, ADestroyedStreamGoesWithItsContext) {
  start();
  enter();
  expect_answer(send<schema::CuStreamCreateParams>(schema::op_cuStreamCreate,
                                                   [](auto p) { p.setPhStream(kStream); }),
                CUDA_SUCCESS);
  driver().shut("created stream");
  driver().shut("event");
  expect_answer(send<schema::CuStreamDestroyV2Params>(schema::op_cuStreamDestroy_v2,
                                                      [](auto p) { p.setHStream(kStream); }),
                CUDA_SUCCESS);
  // Its context is done with the work before our event is seen to be.
  driver().open("created stream");
  expect_answer(send<schema::FgPrimaryReleaseParams>(schema::op_fgPrimaryRelease, [](auto) {}),
                CUDA_SUCCESS);
  enter();
  driver().open("event");
  expect_answer(synchronise_context(), CUDA_SUCCESS);
  EXPECT_FALSE(driver().saw("cuStreamDestroy")) << "of a stream of the context before";
}

// The body of an fgImagePutPacked for a frame, `raw` bytes of `total` at `offset`.
class PackedPut {
 public:
  PackedPut(const Sha256Digest& hash, size_t total, size_t offset, size_t raw, size_t frame)
      : builder_(memory_) {
    auto put = builder_.initRoot<schema::FgImagePutPackedParams>();
    put.setHash(wire::as_data(hash.data(), hash.size()));
    put.setTotalBytes(total);
    put.setOffset(offset);
    put.setRawBytes(raw);
    put.setFrameBytes(frame);
  }
  std::span<const std::byte> body() {
    return std::span<const std::byte>(memory_, builder_.used_bytes());
  }

 private:
  alignas(8) std::byte memory_[256] = {};
  wire::SlotMessageBuilder builder_;
};

TEST_F(Executing, PackedImageIsUnpackedIntoTheCache) {
  start();
  enter();
  const std::string image(300'000, 'i');
  const auto raw = std::as_bytes(std::span(image));
  const Sha256Digest hash = sha256(raw);
  wire::PiecePacker packer;
  const auto first = packer.pack(raw.first(200'000));
  expect_answer(send(schema::op_fgImagePutPacked,
                     PackedPut(hash, raw.size(), 0, 200'000, first.size()).body(), wire::kWantReply,
                     1, first),
                CUDA_SUCCESS);
  const auto rest = packer.pack(raw.subspan(200'000));
  expect_answer(send(schema::op_fgImagePutPacked,
                     PackedPut(hash, raw.size(), 200'000, 100'000, rest.size()).body(),
                     wire::kWantReply, 1, rest),
                CUDA_SUCCESS);
  const uint32_t loading = send<schema::FgModuleLoadParams>(schema::op_fgModuleLoad, [&](auto p) {
    p.setHash(wire::as_data(hash.data(), hash.size()));
    p.setModule(rpc::make_handle(rpc::HandleKind::kModule, 1));
  });
  expect_answer(loading, CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuModuleLoadDataEx " + image));
}

// A piece that is well packed but does not belong there fails its upload; the session goes on.
TEST_F(Executing, PackedImageOfAnotherHashIsRefused) {
  start();
  enter();
  const std::string image(10'000, 'i');
  const auto raw = std::as_bytes(std::span(image));
  wire::PiecePacker packer;
  const auto frame = packer.pack(raw);
  expect_answer(send(schema::op_fgImagePutPacked,
                     PackedPut(sha256({}), raw.size(), 0, raw.size(), frame.size()).body(),
                     wire::kWantReply, 1, frame),
                CUDA_SUCCESS);
  const auto uploaded = [&] {
    return send<schema::FgImageUploadedParams>(schema::op_fgImageUploaded,
                                               [](auto p) { p.setUpload(0); });
  };
  expect_answer(uploaded(), CUDA_ERROR_INVALID_IMAGE);
  expect_answer(uploaded(), CUDA_SUCCESS);
  expect_silence();
}

class PackedLies : public Executing, public ::testing::WithParamInterface<int> {};

// Sizes that do not agree end the session.
TEST_P(PackedLies, EndTheSession) {
  start();
  const std::string image(10'000, 'i');
  const auto raw = std::as_bytes(std::span(image));
  const Sha256Digest hash = sha256(raw);
  wire::PiecePacker packer;
  const auto frame = packer.pack(raw);
  PackedPut puts[] = {
      {hash, 10'000, 0, 9'999, frame.size()},       {hash, 10'000, 1, 10'000, frame.size()},
      {hash, 10'000, 20'000, 10'000, frame.size()}, {hash, 10'000, 0, 10'000, frame.size() + 1},
      {hash, 1 << 20, 0, 10'001, frame.size()},     {{}, 1 << 20, 0, 0, frame.size()}};
  send(schema::op_fgImagePutPacked, puts[GetParam()].body(), wire::kWantReply, 1, frame);
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}
INSTANTIATE_TEST_SUITE_P(All, PackedLies, ::testing::Range(0, 6));

TEST_F(Executing, AFreeThatFailsIsSaidAndKeepsItsCharge) {
  start(false, 1000);
  enter();
  allocate(800);
  allocated();
  driver().fail("cuMemFree", CUDA_ERROR_INVALID_VALUE);
  expect_answer(free_memory(), CUDA_ERROR_INVALID_VALUE);
  expect_answer(allocate(300), CUDA_ERROR_OUT_OF_MEMORY);
  // An error of earlier work does not keep the driver from being asked.
  driver().fail("cuCtxSynchronize", CUDA_ERROR_LAUNCH_FAILED);
  driver().fail("cuMemFree", CUDA_SUCCESS);
  expect_answer(free_memory(), CUDA_SUCCESS);
}

TEST_F(Executing, ContextsEndAsideAndAreGoneAtOnce) {
  start();
  enter();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  driver().shut("cuCtxDestroy");
  const uint32_t ending = send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                               [](auto p) { p.setContext(300); });
  ASSERT_TRUE(eventually([] { return driver().saw("cuCtxDestroy"); }));
  expect_answer(set(1, wire::kWantReply, 300), CUDA_ERROR_INVALID_CONTEXT);
  expect_answer(set(2, wire::kWantReply, 1), CUDA_SUCCESS);
  driver().open("cuCtxDestroy");
  expect_answer(ending, CUDA_SUCCESS);
  expect_answer(send<schema::FgPrimaryReleaseParams>(schema::op_fgPrimaryRelease, [](auto) {}),
                CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuDevicePrimaryCtxRelease"));
  expect_answer(set(3, wire::kWantReply, 1), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Executing, AContextTakesItsLinksAlong) {
  start();
  enter();
  const auto create = [&](uint64_t serial, uint16_t context) {
    expect_answer(
        send<schema::FgLinkCreateParams>(
            schema::op_fgLinkCreate,
            [&](auto p) { p.setState(rpc::make_handle(rpc::HandleKind::kLinkState, serial)); },
            wire::kWantReply, context),
        CUDA_SUCCESS);
  };
  const auto destroy = [&](uint64_t serial) {
    return send<schema::FgLinkDestroyParams>(schema::op_fgLinkDestroy, [&](auto p) {
      p.setState(rpc::make_handle(rpc::HandleKind::kLinkState, serial));
    });
  };
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  create(1, 300);
  create(2, 1);
  driver().shut("cuCtxDestroy");
  const uint32_t ending = send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                               [](auto p) { p.setContext(300); });
  ASSERT_TRUE(eventually([] { return driver().saw("cuCtxDestroy"); }));
  EXPECT_EQ(driver().count("cuLinkDestroy"), 1u) << "before its context";
  expect_answer(destroy(1), CUDA_ERROR_INVALID_HANDLE);
  driver().open("cuCtxDestroy");
  expect_answer(ending, CUDA_SUCCESS);
  expect_answer(destroy(2), CUDA_SUCCESS);
  EXPECT_EQ(driver().count("cuLinkDestroy"), 2u);
}

}  // namespace
}  // namespace fargpu::server
