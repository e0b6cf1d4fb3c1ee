// Deliveries and fetches in a session with a driver made by hand: what the client is told, and
// when; what ends the session.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "tests/server/ordered_copies_fixture.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;

TEST_F(OrderedCopiesTest, BytesComeBeforeTheReplyThatImpliesThem) {
  begin();
  driver().shut("event");
  deliver(7, 1000, 0);
  const uint32_t waiting = synchronise();
  expect_silence();
  driver().open("event");
  const Notice delivery = notice();
  EXPECT_EQ(delivery.opcode, wire::kDelivery);
  EXPECT_EQ(delivery.copy, 7u);
  EXPECT_EQ(delivery.offset, 0u);
  EXPECT_EQ(delivery.result, 0);
  ASSERT_EQ(delivery.bulk.size(), 1000u);
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(delivery.bulk[i], std::byte(kDevice + i));
  expect_answer(waiting, CUDA_SUCCESS);
  EXPECT_FALSE(driver().saw("cuStreamWaitValue32 1")) << "nothing has to hold the stream";
}

TEST_F(OrderedCopiesTest, DeliveriesComeInTheOrderOfTheirSubmission) {
  begin();
  driver().shut("event");
  for (uint64_t id = 1; id <= 20; ++id) deliver(id, 10 * id, 0);
  expect_silence();
  driver().open("event");
  for (uint64_t id = 1; id <= 20; ++id) {
    const Notice delivery = notice();
    EXPECT_EQ(delivery.copy, id);
    EXPECT_EQ(delivery.bulk.size(), 10 * id);
  }
}

TEST_F(OrderedCopiesTest, ALargeDeliveryTakesTurnsInItsStagingMemory) {
  begin();
  driver().shut("event");
  constexpr uint64_t kBytes = OrderedCopies::kStagingBytes;
  deliver(1, kBytes);
  deliver(2, kBytes);
  expect_silence();
  constexpr auto kPieces = static_cast<uint32_t>(kBytes / kPiece);
  EXPECT_EQ(driver().count(fmt::format("cuMemcpyDtoHAsync {}", kPiece)), 2 * kPieces);
  EXPECT_TRUE(driver().saw(fmt::format("cuStreamWaitValue32 {}", kPieces)));
  EXPECT_FALSE(driver().saw(fmt::format("cuStreamWaitValue32 {}", kPieces + 1)));
  EXPECT_EQ(opened(), 0u) << "no block is free";
  driver().open("event");
  for (uint64_t id = 1; id <= 2; ++id) {
    for (uint64_t offset = 0; offset < kBytes; offset += kPiece) {
      const Notice delivery = notice();
      EXPECT_EQ(delivery.copy, id);
      EXPECT_EQ(delivery.offset, offset);
      EXPECT_EQ(delivery.bulk.size(), kPiece);
    }
  }
  EXPECT_TRUE(opened_soon(kPieces));
}

TEST_F(OrderedCopiesTest, AStreamIsHeldUntilTheClientHasTheBytes) {
  begin();
  deliver(3, 100, 2);
  EXPECT_EQ(notice().copy, 3u);
  expect_silence();
  EXPECT_TRUE(driver().saw("cuStreamWaitValue32 1"));
  EXPECT_EQ(opened(), 0u);
  expect_answer(delivered(3), CUDA_SUCCESS);
  EXPECT_TRUE(opened_soon(1));
  delivered(3);  // once
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(OrderedCopiesTest, BytesAreAskedForWhenTheStreamHasComeToThem) {
  begin();
  driver().shut("event");
  fetch(5, 3000);
  expect_silence();
  EXPECT_TRUE(driver().saw("cuStreamWaitValue32 1"));
  driver().open("event");
  const Notice asked = notice();
  EXPECT_EQ(asked.opcode, wire::kFetch);
  EXPECT_EQ(asked.copy, 5u);
  EXPECT_EQ(asked.offset, 0u);
  EXPECT_EQ(asked.bytes, 3000u);
  driver().shut("event");
  expect_answer(fetched(5, 0, std::vector<std::byte>(1000, std::byte{1})), CUDA_SUCCESS);
  EXPECT_EQ(opened(), 0u) << "bytes are missing";
  expect_answer(fetched(5, 1000, std::vector<std::byte>(2000, std::byte{2})), CUDA_SUCCESS);
  EXPECT_TRUE(opened_soon(1));
  const auto* source = static_cast<const std::byte*>(driver().source.load());
  EXPECT_EQ(source[0], std::byte{1});
  EXPECT_EQ(source[999], std::byte{1});
  EXPECT_EQ(source[1000], std::byte{2});
  EXPECT_EQ(source[2999], std::byte{2});
  driver().open("event");
  expect_silence();
}

TEST_F(OrderedCopiesTest, BytesThatStandAreThereBeforeTheStreamComesToThem) {
  begin();
  driver().shut("event");
  fetch(5, 3000, 0, 1, 3);
  const Notice asked = notice();
  EXPECT_EQ(asked.opcode, wire::kFetch);
  EXPECT_EQ(asked.bytes, 3000u);
  expect_answer(fetched(5, 0, std::vector<std::byte>(3000, std::byte{7})), CUDA_SUCCESS);
  EXPECT_TRUE(opened_soon(1));
  EXPECT_EQ(static_cast<const std::byte*>(driver().source.load())[2999], std::byte{7});
  driver().open("event");
  expect_silence();
  deliver(6, 100, 3);
  EXPECT_EQ(end().code(), StatusCode::kProtocol) << "nothing stands at the device";
}

// What a copy to the device takes may be what a copy to the host before it brings.
TEST_F(OrderedCopiesTest, BytesThatCameWithTheirCopyAreAmendedUntilTheStreamHasPassedIt) {
  begin();
  driver().shut("event");
  expect_answer(amended(5, "abcd", wire::kWantReply), CUDA_SUCCESS);
  EXPECT_EQ(source_text(4), "abcd");
  EXPECT_FALSE(driver().saw("cuStreamWaitValue32 1")) << "nothing has to hold the stream";
  expect_answer(amend(5, "bcde", wire::kWantReply), CUDA_SUCCESS);
  EXPECT_EQ(source_text(4), "bcde");
  amended(6, "fghi");
  amend(6, "ghij");
  expect_silence();
  EXPECT_EQ(source_text(4), "ghij");
  driver().open("event");
  expect_passed(5);
  expect_passed(6);
  expect_answer(amend(6, "hijk", wire::kWantReply), CUDA_SUCCESS);
  EXPECT_NE(source_text(4), "hijk") << "the copy is over";
  expect_answer(amended(6, "abcd", wire::kWantReply), CUDA_SUCCESS);  // so its id is free
}

// Beside what is said anyway; no notice of its own wakes the client.
TEST_F(OrderedCopiesTest, WhatHasPassedIsSaidBeforeTheNextAnswer) {
  begin();
  driver().shut("event");
  for (uint64_t id = 1; id <= 3; ++id) amended(id, "abcd");
  expect_silence();
  driver().open("event");
  for (uint64_t id = 1; id <= 3; ++id) expect_passed(id);
  expect_silence();
}

TEST_F(OrderedCopiesTest, AnAmendedCopyThatCannotBeMadeIsOverAndSaysSo) {
  begin();
  const uint32_t refused =
      amended(uint64_t{1} << 32 | 5, "abcd", wire::kWantReply, copy::Order::kStream, /*context=*/9);
  expect_passed(5);  // the low half
  EXPECT_NE(result(refused), CUDA_SUCCESS);
}

TEST_F(OrderedCopiesTest, WhatIsNotAmendedSoEndsTheSession) {
  const std::string much(copy::kMostAmended + 1, 'a');
  struct Case {
    const char* why;
    std::function<void()> send;
  };
  const Case cases[] = {
      {"the id is in use", [&] { amended(5, "efgh"); }},
      {"not the bytes of the copy", [&] { amend(5, "abc"); }},
      {"not the bytes of the copy", [&] { amend(5, "abcde"); }},
      {"too many bytes to be amended", [&] { amended(6, much); }},
      {"its stream's order", [&] { amended(6, "abcd", 0, copy::Order::kReturned); }},
  };
  for (const auto& [why, send_wrong] : cases) {
    begin();
    driver().shut("event");
    amended(5, "abcd");
    send_wrong();
    const Status status = end();
    EXPECT_EQ(status.code(), StatusCode::kProtocol) << why;
    EXPECT_THAT(status.message(), HasSubstr(why));
    TearDown();
  }
}

TEST_F(OrderedCopiesTest, BytesAreAskedForWhenEarlierOnesHaveBeenSent) {
  begin();
  driver().shut("event");
  deliver(1, 3 * kPiece, 0);
  fetch(2, 100);
  expect_silence();
  driver().open("event");
  for (uint64_t offset = 0; offset < 3 * kPiece; offset += kPiece) {
    const Notice delivery = notice();
    EXPECT_EQ(delivery.opcode, wire::kDelivery);
    EXPECT_EQ(delivery.offset, offset);
  }
  EXPECT_EQ(notice().opcode, wire::kFetch);
}

TEST_F(OrderedCopiesTest, AStreamMeetsTheDeliveriesBeforeIt) {
  begin();
  driver().shut("event");
  deliver(1, 3 * kPiece, 0);
  meet(2);
  expect_silence();
  EXPECT_TRUE(driver().saw("cuStreamWaitValue32 1"));
  driver().open("event");
  for (uint64_t offset = 0; offset < 3 * kPiece; offset += kPiece)
    EXPECT_EQ(notice().opcode, wire::kDelivery);
  const Notice met = notice();
  EXPECT_EQ(met.opcode, wire::kFetch);
  EXPECT_EQ(met.copy, 2u);
  EXPECT_EQ(met.bytes, 0u);
  EXPECT_EQ(opened(), 0u);
  expect_answer(delivered(2), CUDA_SUCCESS);
  EXPECT_TRUE(opened_soon(1));
  // One that cannot begin, and one whose stream fails, are over without an answer.
  const uint32_t nowhere = meet(3, 0, 99);
  EXPECT_EQ(notice().result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(result(nowhere, wire::kReply | wire::kAsyncError), CUDA_ERROR_INVALID_CONTEXT);
  driver().shut("event");
  meet(4);
  expect_silence();
  driver().fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  driver().open("event");
  EXPECT_EQ(notice().result, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(opened_soon(2)) << "nothing stays held";
  delivered(4);
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(OrderedCopiesTest, ABarrierIsNotOverBeforeTheStreamHasComeToIt) {
  begin();
  driver().shut("event");
  meet(1);
  expect_silence();
  delivered(1);
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(OrderedCopiesTest, TheAdapterWritesToTheClientBeforeTheNotice) {
  test::RemoteMemoryThatWrites& remote = remote_;
  wrap_ = [&remote](auto inner) {
    return std::make_unique<test::TransportWithRemoteMemory>(std::move(inner), remote);
  };
  begin();
  constexpr uint64_t kBytes = 3 * copy::kWrittenPieceBytes / 2, kAt = 64;
  deliver_to(5, kBytes, {0x9000, kBytes + kAt, 17}, kAt);
  uint64_t at = 0;
  while (at < kBytes) {
    const Notice delivery = notice();
    EXPECT_EQ(delivery.opcode, wire::kDelivery);
    EXPECT_EQ(delivery.offset, at);
    EXPECT_TRUE(delivery.bulk.empty());
    at += delivery.written;
    const auto written = remote.written();
    ASSERT_GE(written.size(), kAt + at);  // perhaps more by now
    EXPECT_EQ(written[kAt + at - 1], std::byte(kDevice + at - 1));
  }
  EXPECT_EQ(at, kBytes);
  expect_answer(synchronise(), CUDA_SUCCESS);
  EXPECT_EQ(remote.key().key, 17u);
  // Blocks that the adapter reads are not used again before it has read them.
  remote.complete(false);
  constexpr auto kPieces = OrderedCopies::kStagingBytes / kPiece;
  deliver_to(6, OrderedCopies::kStagingBytes, {0x9000, 1u << 30, 17}, 0);
  deliver(7, kPiece);
  for (uint64_t i = 0; i < kPieces; ++i) EXPECT_EQ(notice().copy, 6u);
  expect_silence();
  EXPECT_EQ(opened(), 0u);
  remote.complete();
  EXPECT_EQ(notice().copy, 7u);
  EXPECT_TRUE(opened_soon(1));
  deliver_to(8, 100, {0x9000, 99, 17}, 0, wire::kWantReply);
  EXPECT_EQ(notice().result, CUDA_ERROR_INVALID_VALUE) << "outside of what the client named";
  EXPECT_EQ(next().header.result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(OrderedCopiesTest, WhatCannotBeginIsOverAndSaysSo) {
  begin();
  driver().fail("cuMemcpyDtoHAsync 50", CUDA_ERROR_INVALID_VALUE);
  const uint32_t refused = deliver(1, 50);
  const Notice over = notice();
  EXPECT_EQ(over.copy, 1u);
  EXPECT_EQ(over.result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(over.bulk.empty());
  EXPECT_EQ(result(refused, wire::kReply | wire::kAsyncError), CUDA_ERROR_INVALID_VALUE);
  const uint32_t nowhere = deliver(2, 50, 1, 0, 99);
  EXPECT_EQ(notice().result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(result(nowhere, wire::kReply | wire::kAsyncError), CUDA_ERROR_INVALID_CONTEXT);
  driver().fail("cuStreamWaitValue32 1", CUDA_ERROR_NOT_SUPPORTED);
  const uint32_t unheld = fetch(3, 50);
  EXPECT_EQ(notice().result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(result(unheld, wire::kReply | wire::kAsyncError), CUDA_ERROR_NOT_SUPPORTED);
  expect_answer(fetched(3, 0, {}), CUDA_SUCCESS);
  expect_silence();
  fetched(3, 0, {});
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
}

TEST_F(OrderedCopiesTest, AFailedContextEndsItsCopies) {
  begin();
  driver().shut("event");
  deliver(1, 50, 2);
  fetch(2, 50);
  expect_silence();
  driver().fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  driver().open("event");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(notice().result, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(opened_soon(2)) << "nothing stays held";
  expect_answer(fetched(2, 0, {}), CUDA_SUCCESS);
}

TEST_F(OrderedCopiesTest, WhatTheContextTakesWithItIsOver) {
  begin();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  driver().shut("event");
  deliver(1, 50, 2, 0, 300);
  fetch(2, 50, 0, 300);
  amended(3, "abcd", 0, copy::Order::kStream, 300);
  const uint32_t ended = send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                              [](auto p) { p.setContext(300); });
  for (uint64_t id = 1; id <= 2; ++id) {
    const Notice over = notice();
    EXPECT_EQ(over.copy, id);
    EXPECT_EQ(over.result, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  expect_passed(3);
  expect_answer(ended, CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuMemFreeHost"));
  expect_answer(fetched(2, 0, {}), CUDA_SUCCESS);
}

// What was asked for before the context went may still be on its way.
TEST_F(OrderedCopiesTest, BytesForACopyThatIsOverAreTakenAndDropped) {
  begin();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  fetch(2, 50, 0, 300);
  EXPECT_EQ(notice().bytes, 50u);
  expect_answer(send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                     [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  expect_answer(fetched(2, 0, std::vector<std::byte>(50)), CUDA_SUCCESS);
  expect_silence();
}

TEST_F(OrderedCopiesTest, WhatWasNotAskedForEndsTheSession) {
  const std::vector<std::byte> ten(10), eleven(11);
  struct Case {
    const char* what;
    const char* said;
    std::function<void()> act;
  };
  const auto asked = [this] {
    fetch(1, 10);
    EXPECT_EQ(notice().bytes, 10u);
  };
  const Case cases[] = {
      {"bytes of no copy", "no such copy", [&] { fetched(9, 0, ten); }},
      {"no bytes of no copy", "no such copy", [&] { fetched(9, 0, {}); }},
      {"bytes before they were asked for", "not asked for",
       [&] {
         driver().shut("event");
         fetch(1, 10);
         fetched(1, 0, ten);
       }},
      {"bytes of another offset", "not asked for",
       [&] {
         asked();
         fetched(1, 1, ten);
       }},
      {"too many bytes", "not asked for",
       [&] {
         asked();
         fetched(1, 0, eleven);
       }},
      {"no bytes although they are wanted", "no bytes",
       [&] {
         asked();
         fetched(1, 0, {});
       }},
      {"bytes twice", "no such copy",
       [&] {
         asked();
         fetched(1, 0, ten);
         fetched(1, 0, ten);
       }},
      {"a length that is not that of the bytes", "data has the wrong size",
       [&] {
         asked();
         fetched(1, 0, ten, 9);
       }},
      {"an id twice", "in use",
       [&] {
         driver().shut("event");
         fetch(1, 10);
         fetch(1, 10);
       }},
      {"the id of a fetch for a delivery", "in use",
       [&] {
         driver().shut("event");
         fetch(1, 10);
         deliver(1, 10);
       }},
      {"delivered, but not asked for", "no such copy", [&] { delivered(4); }},
      {"delivered before it was sent", "no such copy",
       [&] {
         driver().shut("event");
         deliver(4, 10, 2);
         delivered(4);
       }},
      {"delivered, a fetch", "no such copy",
       [&] {
         driver().shut("event");
         fetch(4, 10);
         delivered(4);
       }},
      {"an empty copy", "shape", [&] { deliver(1, 0); }},
      {"a copy too large for a call", "too many bytes",
       [&] { deliver(1, copy::kMostFollowing + 1); }},
      {"the same to the device", "too many bytes", [&] { fetch(1, copy::kMostFollowing + 1); }},
      {"a copy too large not to hold its stream", "of this size",
       [&] { deliver(1, copy::kMostUnheld + 1, 0); }},
      {"an unknown way to hold", "a hold that", [&] { deliver(1, 10, 4); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    begin();
    c.act();
    const Status status = end();
    EXPECT_EQ(status.code(), StatusCode::kProtocol);
    EXPECT_THAT(status.message(), HasSubstr(c.said));
    TearDown();
  }
}

}  // namespace
}  // namespace fargpu::server
