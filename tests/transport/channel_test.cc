// The channel with a well-behaved server, over every kind of transport.
#include <gtest/gtest.h>
#include <test_messages.capnp.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "common/rpc/answers_awaited.h"
#include "common/rpc/thread_calls.h"
#include "common/wire/control.h"
#include "common/wire/prepared_body.h"
#include "tests/transport/channel_testing.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Channel;
using rpc::Reply;
using transport::Clock;

class ChannelTest : public ::testing::TestWithParam<TransportKind> {};

TEST_P(ChannelTest, CallReturnsTheReply) {
  ChannelFixture f(GetParam());
  for (uint64_t value : {0ull, 1ull, ~0ull}) {
    Reply reply;
    Status status = call_with(*f.channel, kEcho, value, reply);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(reply.result, 0);
    EXPECT_EQ(value_of(reply), value);
  }
}

// Also when the numbers of frames begin again: what was counted before never comes back.
TEST_P(ChannelTest, CountsWhatWasSent) {
  ChannelFixture f(GetParam(), {.first_sequence = 0xfffffffd});
  Reply reply;
  const uint64_t begin = f.channel->frames_sent();
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  EXPECT_EQ(f.channel->frames_sent(), begin + 1);
  ASSERT_TRUE(send_with(*f.channel, kSum, 1).ok());
  uint64_t last = f.channel->frames_sent();
  EXPECT_EQ(last, begin + 2);
  for (int i = 0; i < 4; ++i) {
    Reply next;
    ASSERT_TRUE(call_with(*f.channel, kEcho, 1, next).ok());
    EXPECT_GT(f.channel->frames_sent(), last);
    last = f.channel->frames_sent();
  }
}

TEST_P(ChannelTest, ErrorResultsComeBack) {
  ChannelFixture f(GetParam());
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kFail, 700, reply).ok());
  EXPECT_EQ(reply.result, 700);
  EXPECT_TRUE(reply.body().empty());
}

TEST_P(ChannelTest, LargeRepliesAreWhole) {
  const auto blob = pattern(300'000, 3);
  ChannelFixture f(GetParam().make({}), {},
                   [&](rpc::Responder& responder, const ReceivedFrame& request) {
                     rpc::Responder::Frame frame(responder, request.header, blob.size() + 64);
                     frame.init<Blob>().setData(
                         kj::arrayPtr(reinterpret_cast<const kj::byte*>(blob.data()), blob.size()));
                     return frame.send(0);
                   });
  Reply reply;
  Channel::Call call(*f.channel, 200, 0, 0);
  ASSERT_TRUE(call.call(reply).ok());
  auto data = reply.root<Blob>().getData();
  ASSERT_EQ(data.size(), blob.size());
  EXPECT_EQ(std::memcmp(data.begin(), blob.data(), blob.size()), 0);
}

TEST_P(ChannelTest, BulkGoesForthAndBack) {
  ChannelFixture f(GetParam());
  for (size_t bytes : {1u, 1000u, 100'001u, 9u << 20}) {
    const auto sent = pattern(bytes, 5);
    std::vector<std::byte> received(bytes + 3);
    const rpc::Bytes pieces[] = {rpc::Bytes(sent).first(bytes / 3),
                                 rpc::Bytes(sent).subspan(bytes / 3)};
    Reply reply;
    Status status = call_with(*f.channel, kEcho, 1, reply, pieces, received);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(reply.bulk_bytes, bytes);
    received.resize(bytes);
    EXPECT_EQ(received, sent);
  }
}

TEST_P(ChannelTest, AsyncCallsArriveWithoutAFurtherCall) {
  ChannelFixture f(GetParam());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
  EXPECT_TRUE(eventually([&] { return *f.sum == 5; }));
  // Also after the service thread has gone to sleep.
  std::this_thread::sleep_for(50ms);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
  EXPECT_TRUE(eventually([&] { return *f.sum == 7; }));
}

TEST_P(ChannelTest, CallSeesWhatWasSentBefore) {
  ChannelFixture f(GetParam());
  for (uint64_t i = 1; i <= 500; ++i) {
    ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
    if (i % 7 != 0) continue;
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
    ASSERT_EQ(value_of(reply), i);
  }
}

TEST_P(ChannelTest, BurstsAreBatched) {
  ChannelFixture f(GetParam());
  if (std::string(f.channel->transport().capabilities().name) == "loopback")
    GTEST_SKIP() << "makes no system calls";
  constexpr uint64_t kCalls = 20'000;
  const auto before = f.channel->transport().statistics();
  for (uint64_t i = 0; i < kCalls; ++i) ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
  EXPECT_EQ(value_of(reply), kCalls);
  const auto after = f.channel->transport().statistics();
  EXPECT_EQ(after.frames_sent - before.frames_sent, kCalls + 1);
  EXPECT_LT(after.system_calls - before.system_calls, kCalls / 2);
}

TEST_P(ChannelTest, AsyncErrorsReachTheSinkWithoutAFurtherCall) {
  ChannelFixture f(GetParam());
  ASSERT_TRUE(send_with(*f.channel, kFail, 719).ok());
  ASSERT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::errors).size() == 1; }));
  const AsyncError error = f.sink.get(&RecordingSink::errors)[0];
  EXPECT_EQ(error.opcode, kFail);
  EXPECT_EQ(error.sequence, 1u);
  EXPECT_EQ(error.context, 7);
  EXPECT_EQ(error.result, 719);
}

TEST_P(ChannelTest, SyncAllBringsAsyncErrorsAtOnce) {
  ChannelFixture f(GetParam(), {.sync_all = true});
  int32_t result = -1;
  ASSERT_TRUE(send_with(*f.channel, kFail, 719, &result).ok());
  EXPECT_EQ(result, 719);
  ASSERT_TRUE(send_with(*f.channel, kCount, 4, &result).ok());
  EXPECT_EQ(result, 0);
  EXPECT_EQ(*f.sum, 4);
  EXPECT_TRUE(f.sink.get(&RecordingSink::errors).empty());
  ASSERT_TRUE(send_with(*f.channel, kFail, 2).ok());  // nowhere to put it: the sink keeps it
  EXPECT_EQ(f.sink.get(&RecordingSink::errors).size(), 1u);
}

TEST_P(ChannelTest, AThreadMayWantTheAnswersOfItsAsynchronousCalls) {
  ChannelFixture f(GetParam());
  const auto prepared = wire::PreparedBody::make<Number>(
      [](Number::Builder number, uint64_t value) { number.setValue(value); });
  int32_t result = -1;
  {
    const rpc::AnswersAwaited awaited;
    ASSERT_TRUE(send_with(*f.channel, kFail, 719, &result).ok());
    EXPECT_EQ(result, 719);
    ASSERT_TRUE(f.channel->send_body(kFail, 7, prepared.with(700).bytes(), &result).ok());
    EXPECT_EQ(result, 700);
    std::thread other([&f] {
      int32_t none = -1;
      EXPECT_TRUE(send_with(*f.channel, kFail, 1, &none).ok());
      EXPECT_EQ(none, 0) << "only this thread's";
    });
    other.join();
  }
  ASSERT_TRUE(send_with(*f.channel, kFail, 2, &result).ok());
  EXPECT_EQ(result, 0);
  ASSERT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::errors).size() == 2; }));
}

// A body that is there already travels as one that was built.
TEST_P(ChannelTest, SendsBodiesThatWereBuiltBefore) {
  const auto prepared = wire::PreparedBody::make<Number>(
      [](Number::Builder number, uint64_t value) { number.setValue(value); });
  for (const bool sync_all : {false, true}) {
    ChannelFixture f(GetParam(), {.sync_all = sync_all});
    uint64_t sum = 0;
    int32_t result = -1;
    // By turns with calls that are built, and more than a ring holds.
    for (uint64_t i = 1; i <= (sync_all ? 300 : 30'000); ++i) {
      sum += 2 * i + 1;
      ASSERT_TRUE(f.channel->send_body(kCount, 7, prepared.with(2 * i).bytes(), &result).ok());
      ASSERT_EQ(result, 0);
      ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
    }
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
    EXPECT_EQ(value_of(reply), sum);
    ASSERT_TRUE(f.channel->send_body(kFail, 7, prepared.with(719).bytes(), &result).ok());
    EXPECT_EQ(result, sync_all ? 719 : 0);
    ASSERT_TRUE(f.channel->send_body(kFail, 7, prepared.with(700).bytes()).ok());
    const size_t errors = sync_all ? 1 : 2;
    ASSERT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::errors).size() == errors; }));
    const AsyncError error = f.sink.get(&RecordingSink::errors).back();
    EXPECT_EQ(error.opcode, kFail);
    EXPECT_EQ(error.context, 7);
    EXPECT_EQ(error.result, 700);
    f.server->stop();
    EXPECT_TRUE(eventually([&] {
      return f.channel->send_body(kCount, 7, prepared.with(1).bytes(), &result).code() ==
             StatusCode::kLost;
    }));
    EXPECT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::losses) == 1; }));
  }
}

TEST_P(ChannelTest, CallsWithBodiesThatWereBuiltBefore) {
  ChannelFixture f(GetParam());
  const auto prepared = wire::PreparedBody::make<Number>(
      [](Number::Builder number, uint64_t value) { number.setValue(value); });
  uint64_t sum = 0;
  // By turns with calls that do not wait; some of these leave no room in a ring.
  for (uint64_t i = 1; i <= 300; ++i) {
    const uint64_t burst = i % 50 == 0 ? 20'000 : i % 3;
    for (uint64_t sent = 0; sent < burst; ++sent, ++sum)
      ASSERT_TRUE(f.channel->send_body(kCount, 7, prepared.with(1).bytes()).ok());
    Reply reply;
    ASSERT_TRUE(f.channel->call_body(kSum, 7, prepared.with(0).bytes(), reply).ok());
    ASSERT_EQ(value_of(reply), sum);
  }
  Reply failed;
  ASSERT_TRUE(f.channel->call_body(kFail, 7, prepared.with(719).bytes(), failed).ok());
  EXPECT_EQ(failed.result, 719);
  // From several threads at once.
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        Reply reply;
        ASSERT_TRUE(f.channel->call_body(kEcho, 7, prepared.with(t << 32 | i).bytes(), reply).ok());
        ASSERT_EQ(value_of(reply), t << 32 | i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.server->stop();
  EXPECT_TRUE(eventually([&] {
    Reply reply;
    return f.channel->call_body(kSum, 7, prepared.with(0).bytes(), reply).code() ==
           StatusCode::kLost;
  }));
}

TEST_P(ChannelTest, NoticesComeBeforeTheReplyThatFollowsThem) {
  ChannelFixture f(GetParam());
  for (uint32_t i = 0; i < 20; ++i) {
    const auto text = pattern(10 + i * 1000, i);
    const rpc::Bytes bulk[] = {text};
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kNotify, 0, reply, bulk).ok());
    ASSERT_EQ(f.sink.get(&RecordingSink::notices).size(), i + 1);
    EXPECT_EQ(f.sink.get(&RecordingSink::notices).back(), text);
    EXPECT_EQ(f.sink.get(&RecordingSink::notice_opcodes).back(), wire::kOutput);
  }
}

TEST_P(ChannelTest, NoticesComeWhenNobodyCalls) {
  ChannelFixture f(GetParam());
  for (uint32_t round = 0; round < 3; ++round) {
    const auto text = pattern(100, round);
    const rpc::Bytes bulk[] = {text};
    ASSERT_TRUE(send_with(*f.channel, kNotify, 0, nullptr, bulk).ok());
    ASSERT_TRUE(
        eventually([&] { return f.sink.get(&RecordingSink::notices).size() == round + 1; }));
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  }
}

TEST_P(ChannelTest, ManyThreadsCall) {
  ChannelFixture f(GetParam());
  constexpr int kThreads = 8, kCalls = 400;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const uint64_t value = static_cast<uint64_t>(t) << 32 | static_cast<uint64_t>(i);
        if (i % 3 == 0 && !send_with(*f.channel, kCount, 1).ok()) ++wrong;
        Reply reply;
        std::vector<std::byte> bulk, out;
        if (i % 50 == 0) {
          bulk = pattern(20'000, static_cast<uint32_t>(value));
          out.resize(bulk.size());
        }
        const rpc::Bytes pieces[] = {bulk};
        if (!call_with(*f.channel, kEcho, value, reply, pieces, out).ok())
          ++wrong;
        else if (value_of(reply) != value || out != bulk)
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
  EXPECT_EQ(value_of(reply), static_cast<uint64_t>(kThreads * ((kCalls + 2) / 3)));
}

// What one thread submits after another thread's call returned comes later on the wire.
TEST_P(ChannelTest, OrderHoldsAcrossThreads) {
  std::vector<uint64_t> seen;
  auto script = [&](rpc::Responder& responder, const ReceivedFrame& request) {
    wire::SegmentReader reader(request.body);
    seen.push_back(reader.getRoot<Number>().getValue());
    return responder.reply(request.header, 0);
  };
  ChannelFixture f(GetParam().make({}), {}, script);
  std::atomic<uint64_t> turn{0};
  auto play = [&](uint64_t parity) {
    for (uint64_t mine = parity; mine < 1000; mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine) std::this_thread::yield();
      EXPECT_TRUE(send_with(*f.channel, kCount, mine).ok());
      turn.store(mine + 1, std::memory_order_release);
    }
  };
  std::thread even(play, 0), odd(play, 1);
  even.join();
  odd.join();
  ASSERT_TRUE(f.channel->ping(Clock::now() + 20s).ok());
  f.server->stop();
  ASSERT_EQ(seen.size(), 1000u);
  for (uint64_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
}

TEST_P(ChannelTest, RepliesOutOfOrderFindTheirCalls) {
  std::vector<wire::FrameHeader> held;
  auto script = [&](rpc::Responder& responder, const ReceivedFrame& request) -> Status {
    held.push_back(request.header);
    if (held.size() < 6) return Status();
    for (auto it = held.rbegin(); it != held.rend(); ++it) {
      rpc::Responder::Frame frame(responder, *it, 64);
      frame.init<Number>().setValue(it->sequence);
      FARGPU_RETURN_IF_ERROR(frame.send(0));
    }
    held.clear();
    return Status();
  };
  ChannelFixture f(GetParam().make({}), {}, script);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> total{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      Reply reply;
      if (call_with(*f.channel, kEcho, 0, reply).ok()) total += value_of(reply);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(total, 1u + 2 + 3 + 4 + 5 + 6);
}

// A channel whose server answers with as many bytes as the request says, but not before a second
// request has come, and then the later one first.
struct LaterCalls {
  static constexpr size_t kBytes = 300'000;

  explicit LaterCalls(const TransportKind& kind) : f(kind.make({}), {}, script()) {}
  ScriptedServer::Script script() {
    return [this](rpc::Responder& responder, const ReceivedFrame& request) -> Status {
      held.push_back(request.header);
      if (held.size() < 2) return Status();
      for (auto it = held.rbegin(); it != held.rend(); ++it) {
        rpc::Responder::Frame frame(responder, *it, 0);
        const std::vector<std::byte> bulk = pattern(kBytes, it->sequence);
        const std::span<const std::byte> pieces[] = {bulk};
        FARGPU_RETURN_IF_ERROR(frame.send(0, pieces));
      }
      held.clear();
      return Status();
    };
  }
  // Another thread may be sending: that of the channel, which flushes.
  bool begin(size_t i) {
    memory[i].assign(kBytes, std::byte{});
    return eventually(
        [&] { return f.channel->call_later(kEcho, 7, {}, replies[i], memory[i], calls[i]); });
  }

  std::vector<wire::FrameHeader> held;
  std::vector<std::byte> memory[2];
  ChannelFixture f;
  Reply replies[2];
  rpc::Channel::Later calls[2];
};

TEST_P(ChannelTest, CallsWhoseAnswersAreWaitedForLaterAreUnderWayAtOnce) {
  LaterCalls t(GetParam());
  EXPECT_FALSE(t.calls[0].under_way());
  EXPECT_TRUE(t.calls[0].wait().ok());
  for (uint32_t sequence = 1; sequence < 40; sequence += 2) {
    ASSERT_TRUE(t.begin(0));
    ASSERT_TRUE(t.begin(1));
    EXPECT_TRUE(t.calls[0].under_way());
    for (uint32_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(t.calls[i].wait().ok());
      EXPECT_FALSE(t.calls[i].under_way());
      EXPECT_EQ(t.replies[i].bulk_bytes, LaterCalls::kBytes);
      EXPECT_EQ(t.memory[i], pattern(LaterCalls::kBytes, sequence + i));
    }
  }
}

// Whoever waits reads, also while a call comes first whose thread does not wait for it yet.
TEST_P(ChannelTest, ACallThatIsWaitedForLaterKeepsNobodyWaiting) {
  LaterCalls t(GetParam());
  ASSERT_TRUE(t.begin(0));
  std::thread other([&] {
    Reply reply;
    std::vector<std::byte> memory(LaterCalls::kBytes);
    EXPECT_TRUE(call_with(*t.f.channel, kEcho, 0, reply, {}, memory).ok());
    EXPECT_EQ(memory, pattern(LaterCalls::kBytes, 2));
  });
  other.join();
  EXPECT_TRUE(t.calls[0].wait().ok());
  EXPECT_EQ(t.memory[0], pattern(LaterCalls::kBytes, 1));
}

TEST_P(ChannelTest, CallsWhoseAnswersAreWaitedForLaterEndWithTheSession) {
  LaterCalls t(GetParam());
  ASSERT_TRUE(t.begin(0));
  t.f.server->stop();
  EXPECT_EQ(t.calls[0].wait().code(), StatusCode::kLost);
  EXPECT_FALSE(t.f.channel->call_later(kEcho, 7, {}, t.replies[1], t.memory[1], t.calls[1]));
  EXPECT_TRUE(t.calls[1].wait().ok());
}

// It has no room for the first frame of kCount.
class FullOnce final : public ForwardingTransport {
 public:
  explicit FullOnce(std::unique_ptr<transport::Transport> inner)
      : ForwardingTransport(std::move(inner)) {}
  Status post(const wire::FrameHeader& header, std::span<const std::byte> body) override {
    if (header.opcode != kCount || refused != 0) return ForwardingTransport::post(header, body);
    refused = header.sequence;
    return Status(StatusCode::kTimeout, "there is no room");
  }
  uint32_t refused = 0;
};

// Its waiter may still be on the list when another thread sends: it must not be found.
TEST_P(ChannelTest, TheNumberOfACallThatCouldNotBeSentIsNotUsedAgain) {
  std::atomic<uint32_t> calls{0}, number{0};
  const auto echo = usual_script(std::make_shared<std::atomic<int64_t>>(0));
  TransportPair pair = GetParam().make({});
  auto full = std::make_unique<FullOnce>(std::move(pair.client));
  const FullOnce& seen = *full;
  pair.client = std::move(full);
  ChannelFixture f(std::move(pair), {}, [&](rpc::Responder& responder, const ReceivedFrame& from) {
    ++calls;
    number = from.header.sequence;
    return echo(responder, from);
  });
  Reply reply, later_reply;
  rpc::Channel::Later later;
  EXPECT_TRUE(eventually([&] {
    EXPECT_FALSE(f.channel->call_later(kCount, 7, {}, later_reply, {}, later));
    return seen.refused != 0;
  }));
  ASSERT_TRUE(call_with(*f.channel, kEcho, 5, reply).ok());
  EXPECT_EQ(value_of(reply), 5u);
  EXPECT_EQ(calls, 1u);
  EXPECT_NE(number, seen.refused);
}

TEST_P(ChannelTest, PingAnswers) {
  ChannelFixture f(GetParam());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f.channel->ping(Clock::now() + 20s).ok());
}

TEST_P(ChannelTest, AnAbandonedCallSendsNothing) {
  ChannelFixture f(GetParam());
  {
    Channel::Call call(*f.channel, kCount, 0, 64);
    call.init<Number>().setValue(1000);
  }
  EXPECT_THROW(
      {
        Channel::Call call(*f.channel, kCount, 0, 16);
        call.init<Blob>().initData(4096);
      },
      kj::Exception);
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
  EXPECT_EQ(value_of(reply), 0u);
  EXPECT_EQ(f.server->frames(), 1u);
}

TEST_P(ChannelTest, SendWaitsForASlowServerAndLosesNothing) {
  ChannelFixture f(GetParam());
  f.server->pause(true);
  constexpr int kCalls = 3000;
  const auto bulk_bytes = pattern(16 << 10, 1);
  std::atomic<int> sent{0};
  std::thread sender([&] {
    const rpc::Bytes bulk[] = {bulk_bytes};
    for (int i = 0; i < kCalls; ++i) {
      if (!send_with(*f.channel, kCount, 1, nullptr, bulk).ok()) break;
      ++sent;
    }
  });
  // 48 MB do not fit anywhere: the sender stops, with bounded memory in use.
  int before = -1;
  EXPECT_TRUE(eventually([&] {
    std::this_thread::sleep_for(50ms);
    return std::exchange(before, sent.load()) == sent.load();
  }));
  EXPECT_LT(sent, kCalls);
  f.server->pause(false);
  sender.join();
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
  EXPECT_EQ(value_of(reply), static_cast<uint64_t>(kCalls));
}

TEST_P(ChannelTest, CountsASendThatWaitsForRoom) {
  rpc::counting_calls = true;
  ChannelFixture f(GetParam());
  const rpc::ThreadCalls begin = rpc::thread_calls;
  ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
  EXPECT_EQ(rpc::thread_calls.waited, begin.waited);
  // They do not fit anywhere, be it sixteen connections. Filled before the clock runs.
  const std::vector<std::byte> much(64 << 20);
  const rpc::Bytes bulk[] = {much};
  f.server->pause(true);
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    f.server->pause(false);
  });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(send_with(*f.channel, kCount, 1, nullptr, bulk).ok());
  later.join();
  rpc::counting_calls = false;
  EXPECT_EQ(rpc::thread_calls.sent - begin.sent, 4u);
  EXPECT_GT(rpc::thread_calls.waited, begin.waited);
}

TEST_P(ChannelTest, CloseIsPoliteAndFinal) {
  ChannelFixture f(GetParam());
  ASSERT_TRUE(send_with(*f.channel, kCount, 3).ok());
  f.channel->close(Clock::now() + 20s);
  EXPECT_TRUE(f.channel->lost());
  Reply reply;
  EXPECT_EQ(call_with(*f.channel, kEcho, 1, reply).code(), StatusCode::kLost);
  EXPECT_EQ(*f.sum, 3);  // executed before the server saw the Bye
  EXPECT_EQ(f.server->frames(), 2u);
  f.channel.reset();
  EXPECT_EQ(f.sink.losses, 0);  // our own wish is no loss
}

// How often the channel's own thread has been switched in; there must be one such thread.
long service_thread_switches() {
  long switches = -1;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "fargpu-channel") continue;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line)) {
      if (line.starts_with("voluntary_ctxt_switches:")) switches = std::stol(line.substr(24));
    }
  }
  return switches;
}

// A thread that waits for what a notice brings, alone and while others call.
TEST_P(ChannelTest, ReadsUntilANoticeIsThere) {
  ChannelFixture f(GetParam());
  const auto seen = [&f](size_t count) {
    return [&f, count] { return f.sink.get(&RecordingSink::notices).size() >= count; };
  };
  const auto soon = [] { return Clock::now() + 20s; };
  EXPECT_FALSE(f.channel->read_until(seen(1), Clock::now() + 5ms));
  for (size_t round = 1; round <= 50; ++round) {
    ASSERT_TRUE(send_with(*f.channel, kNotify, 0).ok());
    EXPECT_TRUE(f.channel->read_until(seen(round), soon()));
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      for (uint64_t value = 1; !stop; ++value) {
        Reply reply;
        ASSERT_TRUE(call_with(*f.channel, kEcho, value, reply).ok());
        ASSERT_EQ(value_of(reply), value);
      }
    });
  }
  for (size_t round = 51; round <= 100; ++round) {
    ASSERT_TRUE(send_with(*f.channel, kNotify, 0).ok());
    EXPECT_TRUE(f.channel->read_until(seen(round), soon()));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  f.server->stop();
  EXPECT_FALSE(f.channel->read_until(seen(1000), soon()));
  EXPECT_TRUE(f.channel->lost());
}

// While calls come and go the service thread naps; who awaits a notice wakes it.
TEST_P(ChannelTest, AwaitedNoticesComeAfterCalls) {
  ChannelFixture f(GetParam());
  for (size_t round = 1; round <= 20; ++round) {
    for (uint64_t value = 1; value <= 20; ++value) {
      Reply reply;
      ASSERT_TRUE(call_with(*f.channel, kEcho, value, reply).ok());
    }
    f.sink.awaits = true;
    f.channel->await_notices();
    ASSERT_TRUE(send_with(*f.channel, kNotify, 0).ok());
    EXPECT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::notices).size() == round; }));
    f.sink.awaits = false;
  }
}

TEST_P(ChannelTest, IdleSessionCostsNothing) {
  ChannelFixture f(GetParam(), {.keepalive = 20ms});
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
  // It settles down...
  long before = -1;
  ASSERT_TRUE(eventually([&] {
    std::this_thread::sleep_for(100ms);
    return std::exchange(before, service_thread_switches()) == service_thread_switches();
  }));
  ASSERT_GT(before, 0);
  // ... sleeps through ten keepalive periods, and is there again when needed.
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(service_thread_switches(), before);
  ASSERT_TRUE(send_with(*f.channel, kFail, 5).ok());
  EXPECT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::errors).size() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChannelTest, ::testing::ValuesIn(transport_kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
