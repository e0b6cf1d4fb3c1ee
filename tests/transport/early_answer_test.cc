// A call that ends as soon as a word in shared memory has been written: what is known then, and
// that its reply, which comes later or instead, does no harm.
#include <gtest/gtest.h>

#include <thread>

#include "common/wire/control.h"
#include "tests/transport/channel_testing.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Reply;
using transport::WatchedWord;

// What the script does with a call that has a word.
enum : uint16_t {
  kWriteOnly = 200,   // writes the word; the reply comes with kRelease
  kReplyOnly = 201,   // replies at once
  kFailOnly = 202,    // replies with an error
  kErrorFirst = 203,  // an asynchronous error, then the word
  kSilence = 204,     // neither
  kRelease = 205,     // all replies that were kept, then its own
  kWriteOther = 206,  // another value, and replies after a while
};

class EarlyAnswer : public ::testing::TestWithParam<TransportKind> {
 protected:
  EarlyAnswer()
      : fixture_(GetParam().make({}), {},
                 [this](rpc::Responder& responder, const ReceivedFrame& request) {
                   return answer(responder, request);
                 }) {}

  Status answer(rpc::Responder& responder, const ReceivedFrame& request) {
    switch (request.header.opcode) {
      case kErrorFirst: {
        wire::FrameHeader earlier = request.header;
        earlier.flags = 0;
        FARGPU_RETURN_IF_ERROR(responder.reply(earlier, 719));
        [[fallthrough]];
      }
      case kWriteOnly:
        kept_.push_back(request.header);
        word_.store(value_, std::memory_order_release);
        return Status();
      case kFailOnly:
        return responder.reply(request.header, 700);
      case kSilence:
        return Status();
      case kWriteOther:
        word_.store(value_ + 1, std::memory_order_release);
        std::this_thread::sleep_for(20ms);
        return responder.reply(request.header, 0);
      case kRelease:
        for (const wire::FrameHeader& header : std::exchange(kept_, {}))
          FARGPU_RETURN_IF_ERROR(responder.reply(header, 0));
        [[fallthrough]];
      default:
        return responder.reply(request.header, 0);
    }
  }

  Status call(uint16_t opcode, Reply& reply) {
    const WatchedWord word{&word_, ++value_};
    return fixture_.channel->call_body(opcode, 0, {}, reply, &word);
  }
  // Replies to come do no harm, and none is lost that somebody waits for.
  void expect_health() {
    for (int i = 0; i < 3; ++i) {
      Reply reply;
      ASSERT_TRUE(fixture_.channel->call_body(kRelease, 0, {}, reply).ok());
      EXPECT_EQ(reply.result, 0);
    }
    EXPECT_EQ(fixture_.sink.get(&RecordingSink::losses), 0);
  }

  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> value_{0};
  std::vector<wire::FrameHeader> kept_;  // the server's
  ChannelFixture fixture_;
};

std::vector<TransportKind> kinds(bool watching) {
  std::vector<TransportKind> kept;
  for (const TransportKind& kind : transport_kinds())
    if (!watching || kind.name == "shm_spinning") kept.push_back(kind);
  return kept;
}
std::string name_of(const ::testing::TestParamInfo<TransportKind>& info) { return info.param.name; }

// Of transports that watch words. They sleep after 0.2 ms, so a word has to be there by then: the
// script writes it before the client can begin to wait for long, or the call is made again.
class EarlyAnswerSeen : public EarlyAnswer {
 protected:
  // Whether one of several calls ended before its reply, which was kept from it.
  bool comes_early(uint16_t opcode) {
    std::thread release([this] {
      // For a call whose word came when it slept.
      std::this_thread::sleep_for(2s);
      Reply reply;
      (void)fixture_.channel->call_body(kRelease, 0, {}, reply);
    });
    const auto begin = transport::Clock::now();
    Reply reply;
    const bool ok = call(opcode, reply).ok();
    const bool early = ok && transport::Clock::now() - begin < 1s;
    release.join();
    return early;
  }
};

TEST_P(EarlyAnswerSeen, TheWordEndsTheWait) {
  bool early = false;
  for (int i = 0; i < 5 && !early; ++i) early = comes_early(kWriteOnly);
  EXPECT_TRUE(early);
  expect_health();
}

TEST_P(EarlyAnswerSeen, WhatWasSentBeforeTheWordIsThere) {
  for (size_t i = 1; i <= 3; ++i) {
    (void)comes_early(kErrorFirst);
    EXPECT_EQ(fixture_.sink.get(&RecordingSink::errors).size(), i);
  }
  expect_health();
}

TEST_P(EarlyAnswerSeen, TheWordIsNotEnoughWhileNoticesAreAwaited) {
  fixture_.sink.awaits = true;
  EXPECT_FALSE(comes_early(kWriteOnly));
  fixture_.sink.awaits = false;
  expect_health();
}

TEST_P(EarlyAnswer, TheReplyIsEnough) {
  for (int i = 0; i < 100; ++i) {
    Reply reply;
    ASSERT_TRUE(call(kReplyOnly, reply).ok());
    EXPECT_EQ(reply.result, 0);
  }
  expect_health();
}

TEST_P(EarlyAnswer, AnErrorComesByTheReply) {
  Reply reply;
  ASSERT_TRUE(call(kFailOnly, reply).ok());
  EXPECT_EQ(reply.result, 700);
  expect_health();
}

TEST_P(EarlyAnswer, AnotherValueIsNoAnswer) {
  const auto begin = transport::Clock::now();
  Reply reply;
  ASSERT_TRUE(call(kWriteOther, reply).ok());
  EXPECT_GE(transport::Clock::now() - begin, 20ms);
  expect_health();
}

TEST_P(EarlyAnswer, TheEndOfTheServerEndsTheWait) {
  std::thread stop([this] {
    while (fixture_.server->frames() == 0) std::this_thread::sleep_for(1ms);
    fixture_.server->stop();
  });
  Reply reply;
  EXPECT_EQ(call(kSilence, reply).code(), StatusCode::kLost);
  stop.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, EarlyAnswer, ::testing::ValuesIn(kinds(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Transports, EarlyAnswerSeen, ::testing::ValuesIn(kinds(true)), name_of);

}  // namespace
}  // namespace fargpu::test
