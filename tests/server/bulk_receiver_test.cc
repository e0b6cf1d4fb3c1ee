// A session with a bulk connection: bytes that were asked for land beside the calls; what else
// comes there ends the session.
#include "server/worker/bulk_receiver.h"

#include <gmock/gmock.h>

#include "generated/schema/memory.capnp.h"
#include "tests/server/ordered_copies_fixture.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;
using transport::Clock;

class BulkReceiverTest : public OrderedCopiesTest {
 protected:
  BulkReceiverTest() { with_bulk_connection_ = true; }

  struct Frame {
    uint64_t copy = 0, offset = 0;
    std::vector<std::byte> bytes{};
    std::optional<uint64_t> said{};
    uint16_t opcode = schema::op_fgFetched;
    uint16_t flags = 0;
  };
  void send_beside(const Frame& frame) {
    const bool empty_body = frame.opcode != schema::op_fgFetched;
    constexpr size_t kHeader = sizeof(wire::FrameHeader);
    auto slot = beside_->reserve(kHeader + 64, Clock::now() + std::chrono::seconds(20));
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    wire::SlotMessageBuilder builder(slot->subspan(kHeader));
    auto params = builder.initRoot<schema::FgFetchedParams>();
    params.setId(frame.copy);
    params.setOffset(frame.offset);
    params.setBytes(frame.said.value_or(frame.bytes.size()));
    wire::FrameHeader header;
    header.opcode = frame.opcode;
    header.flags = frame.flags;
    header.sequence = ++sequence_beside_;
    header.body_bytes = empty_body ? 0 : static_cast<uint32_t>(builder.used_bytes());
    header.bulk_bytes = frame.bytes.size();
    std::memcpy(slot->data(), &header, kHeader);
    const std::span<const std::byte> bulk = frame.bytes;
    ASSERT_TRUE(beside_
                    ->commit(kHeader + header.body_bytes, std::span(&bulk, bulk.empty() ? 0 : 1),
                             Clock::now() + std::chrono::seconds(20))
                    .ok());
    // The frame may have been read already, and have ended the connection.
    (void)beside_->flush(Clock::now() + std::chrono::seconds(20));
  }
  void expect_landed(uint64_t copy) {
    const Notice landed = notice();
    EXPECT_EQ(landed.opcode, wire::kLanded);
    EXPECT_EQ(landed.copy, copy);
  }
  void expect_asked(uint64_t copy, uint64_t offset, uint64_t bytes) {
    const Notice asked = notice();
    EXPECT_EQ(asked.opcode, wire::kFetch);
    EXPECT_EQ(asked.copy, copy);
    EXPECT_EQ(asked.offset, offset);
    EXPECT_EQ(asked.bytes, bytes);
    EXPECT_EQ(asked.result, 0);
  }
  // It ends when the gate "cuMemAlloc 77" is opened.
  uint32_t call_that_lasts() {
    driver().shut("cuMemAlloc 77");
    const uint32_t call = send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                                           [](auto p) { p.setBytesize(77); });
    EXPECT_TRUE(eventually([] { return driver().saw("cuMemAlloc 77"); }));
    return call;
  }
  static std::vector<std::byte> of(size_t bytes, int value) {
    return std::vector<std::byte>(bytes, std::byte(value));
  }

 private:
  uint32_t sequence_beside_ = 0;
};

TEST_F(BulkReceiverTest, BytesLandAndTheGateOpensBeforeTheClientIsTold) {
  begin();
  fetch(5, 3000);
  expect_asked(5, 0, 3000);
  driver().shut("event");  // the copy behind the gate
  send_beside({5, 0, of(1000, 1)});
  expect_silence();
  EXPECT_EQ(opened(), 0u) << "bytes are missing";
  send_beside({5, 1000, of(2000, 2)});
  expect_landed(5);
  EXPECT_EQ(opened(), 1u);
  const auto* source = static_cast<const std::byte*>(driver().source.load());
  EXPECT_EQ(source[0], std::byte{1});
  EXPECT_EQ(source[999], std::byte{1});
  EXPECT_EQ(source[1000], std::byte{2});
  EXPECT_EQ(source[2999], std::byte{2});
  driver().open("event");
  expect_silence();
}

// They land while the executor is in a call; what follows from it waits for the executor.
TEST_F(BulkReceiverTest, BytesAreReadWhileACallIsExecuted) {
  begin();
  fetch(5, 3 * kPiece);
  for (uint64_t i = 0; i < 3; ++i) expect_asked(5, i * kPiece, kPiece);
  const uint32_t call = call_that_lasts();
  // The connection holds one of them: others are taken only when that has been read.
  for (uint64_t i = 0; i < 3; ++i)
    send_beside({5, i * kPiece, of(kPiece, static_cast<int>(i + 1))});
  EXPECT_EQ(opened(), 0u);
  driver().open("cuMemAlloc 77");
  expect_answer(call, CUDA_SUCCESS);
  expect_landed(5);
  EXPECT_EQ(opened(), 3u);
}

// More than the connection holds by itself.
TEST_F(BulkReceiverTest, ManyFramesWaitForAnExecutorThatIsInACall) {
  constexpr uint64_t kPieces = 4, kFrames = 4 * BulkReceiver::kMostAhead;
  constexpr uint64_t kBytes = kPieces * kPiece / kFrames;
  begin();
  fetch(5, kPieces * kPiece);
  for (uint64_t i = 0; i < kPieces; ++i) expect_asked(5, i * kPiece, kPiece);
  const uint32_t call = call_that_lasts();
  std::atomic<size_t> sent{0};
  std::thread sender([&] {
    for (uint64_t i = 0; i < kFrames; ++i) {
      send_beside({5, i * kBytes, of(kBytes, 1)});
      ++sent;
    }
  });
  EXPECT_TRUE(eventually([&] { return sent >= BulkReceiver::kMostAhead; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(sent, kFrames) << "they are read without end";
  driver().open("cuMemAlloc 77");
  expect_answer(call, CUDA_SUCCESS);
  expect_landed(5);
  sender.join();
}

TEST_F(BulkReceiverTest, ASessionEndsWhileItsReaderWaitsForTheExecutor) {
  constexpr uint64_t kFrames = 2 * BulkReceiver::kMostAhead;
  begin();
  fetch(5, kFrames);
  expect_asked(5, 0, kFrames);
  call_that_lasts();
  for (uint64_t i = 0; i < kFrames; ++i) send_beside({5, i, of(1, 1)});
  hang_up();
  driver().open("cuMemAlloc 77");
  EXPECT_EQ(end().code(), StatusCode::kLost);
}

TEST_F(BulkReceiverTest, SeveralCopiesComeInAnyOrder) {
  begin();
  fetch(1, 100);
  expect_asked(1, 0, 100);
  fetch(2, 200, 0, 1);
  expect_asked(2, 0, 200);
  send_beside({2, 0, of(200, 2)});
  expect_landed(2);
  send_beside({1, 0, of(100, 1)});
  expect_landed(1);
}

TEST_F(BulkReceiverTest, AContextThatGoesLeavesBytesUnderWay) {
  begin();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  fetch(2, 2 * kPiece, 0, 300);
  expect_asked(2, 0, kPiece);
  expect_asked(2, kPiece, kPiece);
  send_beside({2, 0, of(1000, 1)});
  expect_answer(send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                     [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  send_beside({2, 1000, of(kPiece - 1000, 1)});
  expect_silence();
  send_beside({2, kPiece, of(kPiece, 2)});
  expect_landed(2);
  // The session goes on.
  fetch(3, 50);
  expect_asked(3, 0, 50);
  send_beside({3, 0, of(50, 3)});
  expect_landed(3);
}

TEST_F(BulkReceiverTest, AFailedContextIsGivenUpBehindTheBytes) {
  begin();
  // Staging memory for 16 pieces: the last one is asked for when a block is free.
  fetch(1, 16 * kPiece);
  for (uint64_t i = 0; i < 16; ++i) expect_asked(1, i * kPiece, kPiece);
  driver().shut("event");
  fetch(2, kPiece);
  expect_silence();
  driver().fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  driver().open("event");
  const Notice over = notice();
  EXPECT_EQ(over.copy, 2u);
  EXPECT_EQ(over.result, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (uint64_t i = 0; i < 16; ++i) send_beside({1, i * kPiece, of(kPiece, 1)});
  send_beside({2, 0, {}});
  expect_landed(1);
  expect_silence();
}

TEST_F(BulkReceiverTest, WhatWasNotAskedForEndsTheSession) {
  const auto ten = of(10, 1);
  const auto asked = [this] {
    fetch(1, 10);
    expect_asked(1, 0, 10);
  };
  struct Case {
    const char* what;
    const char* said;
    bool asks;
    Frame frame;
  };
  const Case cases[] = {
      {"bytes of no copy", "not asked for", false, {9, 0, ten}},
      {"no bytes of no copy", "no such copy", false, {9, 0, {}}},
      {"bytes of another offset", "not asked for", true, {1, 1, ten}},
      {"an offset far away", "not asked for", true, {1, ~uint64_t{0}, ten}},
      {"too many bytes", "not asked for", true, {1, 0, of(11, 1)}},
      {"no bytes although they are wanted", "no bytes", true, {1, 0, {}}},
      {"fewer bytes than it says", "says 10 bytes and brings 9", true, {1, 0, of(9, 1), 10}},
      {"no bytes, but it says some", "says 10 bytes and brings 0", true, {1, 0, {}, 10}},
      {"a call", "opcode", false, {0, 0, {}, {}, schema::op_cuStreamSynchronize}},
      {"a bye", "opcode 3", false, {0, 0, {}, {}, wire::kBye}},
      {"a call with bytes", "opcode", false, {0, 0, ten, {}, schema::op_fgCopy}},
      {"somebody who waits", "flags 0x2", true, {1, 0, ten, {}, schema::op_fgFetched, 2}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    begin();
    if (c.asks) asked();
    send_beside(c.frame);
    const Status status = end();
    EXPECT_EQ(status.code(), StatusCode::kProtocol);
    EXPECT_THAT(status.message(), HasSubstr(c.said));
    TearDown();
  }
}

TEST_F(BulkReceiverTest, BytesTwiceEndTheSession) {
  begin();
  fetch(1, 10);
  expect_asked(1, 0, 10);
  send_beside({1, 0, of(10, 1)});
  expect_landed(1);
  send_beside({1, 0, of(10, 1)});
  EXPECT_THAT(end().message(), HasSubstr("not asked for"));
}

TEST_F(BulkReceiverTest, TheEndOfTheConnectionEndsTheSession) {
  begin();
  fetch(1, 10);
  expect_asked(1, 0, 10);
  beside_->close();
  const Status status = end();
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_THAT(status.message(), HasSubstr("bulk connection has ended"));
}

// A client that ends closes both, and the order in which that is seen is any.
TEST_F(BulkReceiverTest, CallsThatCameBeforeTheEndAreExecuted) {
  begin();
  beside_->close();
  for (int i = 0; i < 100; ++i) {
    expect_silence();
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  send(wire::kBye, {}, 0);
  EXPECT_TRUE(end().ok());
}

// Of which the session's first connection brings bytes, and never a whole frame.
class Dribble final : public test::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  transport::Statistics statistics() const override {
    transport::Statistics all = ForwardingTransport::statistics();
    const auto passed = Clock::now() - begin_;
    const auto ticks =
        std::min<Clock::duration>(passed, std::chrono::seconds(2)) / std::chrono::milliseconds(100);
    all.bytes_received += static_cast<uint64_t>(ticks);
    return all;
  }

 private:
  const Clock::time_point begin_ = Clock::now();
};

TEST_F(BulkReceiverTest, AFrameThatIsStillComingIsAwaited) {
  wrap_ = [](auto transport) { return std::make_unique<Dribble>(std::move(transport)); };
  const auto begun = Clock::now();
  begin();
  beside_->close();
  EXPECT_EQ(end().code(), StatusCode::kLost);
  EXPECT_GE(Clock::now() - begun, std::chrono::seconds(2) + BulkReceiver::kLastFrames);
}

TEST_F(BulkReceiverTest, AByeDoesNotWaitForBytes) {
  begin();
  fetch(1, 10);
  expect_asked(1, 0, 10);
  send(wire::kBye, {}, 0);
  EXPECT_TRUE(end().ok());
}

}  // namespace
}  // namespace fargpu::server
