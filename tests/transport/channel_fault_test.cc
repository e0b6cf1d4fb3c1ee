// The channel with servers that die, hang, lie or answer late.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <test_messages.capnp.h>
#include <unistd.h>

#include <thread>

#include "common/transport/frame_io.h"
#include "common/transport/loopback/loopback.h"
#include "common/wire/control.h"
#include "tests/transport/channel_testing.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Channel;
using rpc::Reply;
using transport::Clock;

class ChannelFaultTest : public ::testing::TestWithParam<TransportKind> {};

TEST_P(ChannelFaultTest, DeathOfTheServerEndsEveryWait) {
  ChannelFixture f(GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      Reply reply;
      if (call_with(*f.channel, kForget, 0, reply).code() == StatusCode::kLost) ++lost;
    });
  }
  ASSERT_TRUE(eventually([&] { return f.server->frames() == 6; }));
  f.server->stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 6);
  EXPECT_EQ(f.sink.get(&RecordingSink::losses), 1);
  EXPECT_TRUE(f.channel->lost());
  EXPECT_FALSE(f.channel->why_lost().message().empty());
  // Later calls fail at once, and building them still works.
  EXPECT_EQ(send_with(*f.channel, kCount, 1).code(), StatusCode::kLost);
  EXPECT_EQ(f.channel->ping(transport::kNoDeadline).code(), StatusCode::kLost);
}

TEST_P(ChannelFaultTest, DeathOfTheServerIsSeenWhileIdle) {
  ChannelFixture f(GetParam());
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  f.server->stop();
  ASSERT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::losses) == 1; }));
  EXPECT_EQ(f.sink.get(&RecordingSink::lost_why).code(), StatusCode::kLost);
}

TEST_P(ChannelFaultTest, DeathDuringABurstEndsTheSenders) {
  ChannelFixture f(GetParam());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (send_with(*f.channel, kCount, 1).ok()) {
      }
    });
  }
  ASSERT_TRUE(eventually([&] { return f.server->frames() > 1000; }));
  f.server->stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(f.channel->lost());
}

TEST_P(ChannelFaultTest, SilentServerIsLostAfterTwoPings) {
  ChannelFixture f(GetParam(), {.keepalive = 40ms});
  f.server->pause(true);
  const auto begin = Clock::now();
  Reply reply;
  EXPECT_EQ(call_with(*f.channel, kEcho, 1, reply).code(), StatusCode::kLost);
  EXPECT_GE(Clock::now() - begin, 80ms);
  EXPECT_NE(f.channel->why_lost().message().find("not answered"), std::string::npos)
      << f.channel->why_lost().message();
}

TEST_P(ChannelFaultTest, SlowCallOfALivingServerIsNotLost) {
  std::optional<wire::FrameHeader> held;
  auto script = [&](rpc::Responder&, const ReceivedFrame& request) {
    held = request.header;
    return Status();
  };
  ChannelFixture f(GetParam().make({}), {.keepalive = 150ms}, script);
  std::atomic<bool> returned{false};
  Status status;
  std::thread caller([&] {
    Reply reply;
    status = call_with(*f.channel, kEcho, 1, reply);
    returned = true;
  });
  std::this_thread::sleep_for(1s);  // longer than three keepalive periods
  EXPECT_FALSE(returned);
  EXPECT_GT(f.server->frames(), 2u);  // it was asked
  f.server->stop();
  caller.join();
  EXPECT_EQ(status.code(), StatusCode::kLost);
}

// Nobody waits for an answer, only for room.
class FullChannel : public ChannelFaultTest {
 protected:
  FullChannel() : pair_(GetParam().make(options())) {
    // The server's end, as a thread beside a stuck executor has it.
    far_ = pair_.server.get();
  }
  static transport::StreamOptions options() {
    transport::StreamOptions stream;
    stream.stall_timeout = transport::StreamOptions::kNeverStalls;
    return stream;
  }
  // Sends until the channel is lost.
  void fill(Channel& channel) {
    const std::vector<std::byte> bulk(64 << 10);
    const rpc::Bytes pieces[] = {bulk};
    while (send_with(channel, kCount, 1, nullptr, pieces).ok()) ++sent_;
    ended_ = true;
  }
  bool is_full() {
    return eventually([this, before = uint64_t{0}]() mutable {
      const uint64_t now = sent_;
      std::this_thread::sleep_for(50ms);
      return now > 0 && now == sent_ && std::exchange(before, now) == now;
    });
  }

  TransportPair pair_;
  transport::Transport* far_ = nullptr;
  std::atomic<uint64_t> sent_{0};
  std::atomic<bool> ended_{false};
};

TEST_P(FullChannel, OfALivingServerWaits) {
  RecordingSink sink;
  Channel channel(std::move(pair_.client), sink, {.keepalive = 100ms});
  std::thread sender([&] { fill(channel); });
  ASSERT_TRUE(is_full());
  rpc::Responder responder(*far_);
  for (int i = 0; i < 40; ++i) {  // seven times as long as a silent server has
    responder.try_notice(wire::kAlive, 0);
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_FALSE(channel.lost()) << channel.why_lost().message();
  EXPECT_FALSE(ended_);
  far_->close();
  sender.join();
}

// What was committed while the server took nothing leaves without a further call, once it does.
TEST_P(FullChannel, EmptiesByItself) {
  constexpr uint64_t kFrames = 200'000;  // more than sockets and rings hold, or as many as that is
  RecordingSink sink;
  Channel channel(std::move(pair_.client), sink, {.keepalive = 60s});
  std::thread sender([&] {
    for (uint64_t i = 0; i < kFrames && send_with(channel, kCount, 1).ok(); ++i) ++sent_;
    (void)channel.flush();  // as far as that goes
    ended_ = true;
  });
  std::this_thread::sleep_for(100ms);
  struct Counting final : transport::FrameHandler {
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&, rpc::Bytes) override {
      return Status(StatusCode::kSystem, "no bulk was sent");
    }
    Status on_frame(const wire::FrameHeader&, rpc::Bytes, std::span<std::byte>) override {
      ++frames;
      return Status();
    }
    uint64_t frames = 0;
  } taken;
  const auto end = Clock::now() + 60s;
  while (taken.frames < kFrames && Clock::now() < end)
    ASSERT_TRUE(far_->receive(taken, Clock::now() + 10ms).ok());
  EXPECT_EQ(taken.frames, kFrames);
  sender.join();
  EXPECT_EQ(sent_, kFrames);
}

TEST_P(FullChannel, OfASilentServerIsLost) {
  RecordingSink sink;
  Channel channel(std::move(pair_.client), sink, {.keepalive = 100ms});
  std::thread sender([&] { fill(channel); });
  EXPECT_TRUE(eventually([&] { return ended_.load(); }));
  if (!ended_) far_->close();
  sender.join();
  EXPECT_TRUE(channel.lost());
  EXPECT_NE(channel.why_lost().message().find("not answered"), std::string::npos)
      << channel.why_lost().message();
}

TEST_P(FullChannel, IsClosedByTheDeadline) {
  RecordingSink sink;
  Channel channel(std::move(pair_.client), sink, {});
  std::thread sender([&] { fill(channel); });
  ASSERT_TRUE(is_full());
  const auto begin = Clock::now();
  channel.close(begin + 100ms);
  EXPECT_LT(Clock::now() - begin, 5s);
  sender.join();
  EXPECT_EQ(sink.get(&RecordingSink::losses), 0);
}

TEST_P(FullChannel, APingKeepsItsDeadline) {
  RecordingSink sink;
  Channel channel(std::move(pair_.client), sink, {});
  std::thread sender([&] { fill(channel); });
  ASSERT_TRUE(is_full());
  const auto begin = Clock::now();
  EXPECT_EQ(channel.ping(begin + 100ms).code(), StatusCode::kTimeout);
  EXPECT_LT(Clock::now() - begin, 5s);
  far_->close();
  sender.join();
}

INSTANTIATE_TEST_SUITE_P(Kinds, FullChannel, ::testing::ValuesIn(transport_kinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelFaultTest, PingKeepsItsDeadlineAndALateAnswerDoesNoHarm) {
  ChannelFixture f(GetParam());
  f.server->pause(true);
  EXPECT_EQ(f.channel->ping(Clock::now() + 30ms).code(), StatusCode::kTimeout);
  f.server->pause(false);
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 5, reply).ok());
  EXPECT_EQ(value_of(reply), 5u);
  EXPECT_FALSE(f.channel->lost());
}

TEST_P(ChannelFaultTest, SequenceNumbersWrapPastZero) {
  ChannelFixture f(GetParam(), {.first_sequence = 0xfffffff0});
  for (uint64_t i = 0; i < 40; ++i) {
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kEcho, i, reply).ok());
    ASSERT_EQ(value_of(reply), i);
  }
  ASSERT_TRUE(send_with(*f.channel, kFail, 3).ok());
  ASSERT_TRUE(eventually([&] { return !f.sink.get(&RecordingSink::errors).empty(); }));
  EXPECT_EQ(f.sink.get(&RecordingSink::errors)[0].sequence, 25u);  // 16 before the wrap, 0 left out
}

// A frame that is this header and nothing else, as no Responder would send it.
Status send_header(rpc::Responder& responder, const wire::FrameHeader& header) {
  auto slot = responder.transport().reserve(sizeof header, transport::kNoDeadline);
  if (!slot.ok()) return slot.status();
  std::memcpy(slot->data(), &header, sizeof header);
  return responder.transport().commit(sizeof header, {}, transport::kNoDeadline);
}

TEST_P(ChannelFaultTest, WrongAnswersEndTheSession) {
  struct Lie {
    const char* name;
    std::function<void(wire::FrameHeader&)> change;
  };
  const Lie lies[] = {
      {"unknown sequence", [](auto& header) { header.sequence += 100; }},
      {"other opcode", [](auto& header) { header.opcode += 1; }},
      {"a request", [](auto& header) { header.flags = wire::kWantReply; }},
      {"no flags", [](auto& header) { header.flags = 0; }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    auto script = [&](rpc::Responder& responder, const ReceivedFrame& request) {
      wire::FrameHeader header = request.header;
      header.flags = wire::kReply;
      header.body_bytes = 0;
      lie.change(header);
      return send_header(responder, header);
    };
    ChannelFixture f(GetParam().make({}), {}, script);
    Reply reply;
    EXPECT_EQ(call_with(*f.channel, kEcho, 1, reply).code(), StatusCode::kLost);
    EXPECT_EQ(f.sink.get(&RecordingSink::losses), 1);
  }
}

// Both leave together, so the second one finds a call that is answered, but not yet awake.
TEST_P(ChannelFaultTest, SecondAnswerEndsTheSessionAndSpoilsNothing) {
  auto script = [&](rpc::Responder& responder, const ReceivedFrame& request) {
    for (int32_t result : {7, 8}) {
      wire::FrameHeader header = request.header;
      header.flags = wire::kReply;
      header.body_bytes = 0;
      header.result = result;
      FARGPU_RETURN_IF_ERROR(send_header(responder, header));
    }
    return Status();
  };
  ChannelFixture f(GetParam().make({}), {}, script);
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  EXPECT_EQ(reply.result, 7);
  EXPECT_TRUE(eventually([&] { return f.sink.get(&RecordingSink::losses) == 1; }));
}

TEST_P(ChannelFaultTest, MoreBulkThanAskedForEndsTheSession) {
  ChannelFixture f(GetParam());
  const auto bulk = pattern(100, 1);
  const rpc::Bytes pieces[] = {bulk};
  std::vector<std::byte> room(99);
  Reply reply;
  EXPECT_EQ(call_with(*f.channel, kEcho, 1, reply, pieces, room).code(), StatusCode::kLost);
}

TEST_P(ChannelFaultTest, MalformedBodyThrowsWhereItIsRead) {
  auto script = [&](rpc::Responder& responder, const ReceivedFrame& request) {
    wire::FrameHeader header = request.header;
    header.flags = wire::kReply;
    header.body_bytes = 16;
    auto slot = responder.transport().reserve(sizeof header + 16, transport::kNoDeadline);
    if (!slot.ok()) return slot.status();
    std::memset(slot->data(), 0xff, slot->size());
    std::memcpy(slot->data(), &header, sizeof header);
    return responder.transport().commit(sizeof header + 16, {}, transport::kNoDeadline);
  };
  ChannelFixture f(GetParam().make({}), {}, script);
  Reply reply;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  EXPECT_THROW(value_of(reply), kj::Exception);
  EXPECT_FALSE(f.channel->lost());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChannelFaultTest, ::testing::ValuesIn(transport_kinds()),
                         [](const auto& info) { return info.param.name; });

// The reply stops in the middle of its bulk: the call must not return while anybody may still write
// into its memory.
TEST(ChannelByHand, DeathInTheMiddleOfBulk) {
  auto [transport, server] = make_unix_transport_and_socket({});
  RecordingSink sink;
  Channel channel(std::move(transport), sink, {});
  Status status;
  std::vector<std::byte> room(1 << 20);
  std::thread caller([&] {
    Reply reply;
    status = call_with(channel, kEcho, 1, reply, {}, room);
  });
  auto request = transport::read_one_frame(server.get(), {}, Clock::now() + 20s);
  ASSERT_TRUE(request.ok());
  wire::FrameHeader header = request->header;
  header.flags = wire::kReply;
  header.body_bytes = 0;
  header.bulk_bytes = room.size();
  const std::vector<std::byte> half(room.size() / 2, std::byte{5});
  ASSERT_EQ(::send(server.get(), &header, sizeof header, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof header));
  for (size_t done = 0; done < half.size();) {
    const ssize_t sent = ::send(server.get(), half.data() + done, half.size() - done, MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    done += static_cast<size_t>(sent);
  }
  server.reset();
  caller.join();
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_NE(status.message().find("middle of a frame"), std::string::npos) << status.message();
}

// While a sender is stuck in a long frame no ping can be sent; moving bytes are sign of life
// enough.
TEST(ChannelByHand, LongTransferIsASignOfLife) {
  auto [transport, server] = make_unix_transport_and_socket({});
  RecordingSink sink;
  Channel channel(std::move(transport), sink, {.keepalive = 300ms});
  std::thread waiting([&] {
    Reply reply;
    EXPECT_EQ(call_with(channel, kForget, 1, reply).code(), StatusCode::kLost);
  });
  auto first = transport::read_one_frame(server.get(), {}, Clock::now() + 20s);
  ASSERT_TRUE(first.ok());
  const std::vector<std::byte> bulk(8 << 20);
  std::thread sender([&] {
    const rpc::Bytes pieces[] = {bulk};
    EXPECT_TRUE(send_with(channel, kCount, 1, nullptr, pieces).ok());
  });
  std::vector<std::byte> sip(400 << 10);
  for (size_t total = 0; total < bulk.size();) {  // a slow link: about seven keepalive periods
    std::this_thread::sleep_for(100ms);
    const ssize_t got = ::recv(server.get(), sip.data(), sip.size(), 0);
    EXPECT_GT(got, 0);
    EXPECT_FALSE(channel.lost()) << channel.why_lost().message();
    if (got <= 0 || channel.lost()) break;
    total += static_cast<size_t>(got);
  }
  sender.join();
  server.reset();
  waiting.join();
}

// The caller waits for room, so it does not read: somebody else must, or two full directions would
// wait for each other.
TEST(ChannelByHand, NoticesComeWhileACallWaitsForRoom) {
  auto [transport, server] = make_unix_transport_and_socket({});
  const int buffer_bytes = 16 << 10;
  ASSERT_EQ(::setsockopt(transport->peer_socket(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes,
                         sizeof buffer_bytes),
            0);
  RecordingSink sink;
  Channel channel(std::move(transport), sink, {});
  constexpr int kBefore = 2000;  // more than the socket takes, less than the channel does
  for (int i = 0; i < kBefore; ++i) ASSERT_TRUE(send_with(channel, kCount, 1).ok());
  std::atomic<bool> returned{false};
  std::thread caller([&] {
    Reply reply;
    EXPECT_TRUE(call_with(channel, kEcho, 1, reply).ok());
    returned = true;
  });
  std::this_thread::sleep_for(50ms);
  wire::FrameHeader notice;
  notice.opcode = wire::kOutput;
  notice.flags = wire::kNotice;
  ASSERT_EQ(::send(server.get(), &notice, sizeof notice, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof notice));
  EXPECT_TRUE(eventually([&] { return !sink.get(&RecordingSink::notice_opcodes).empty(); }));
  EXPECT_FALSE(returned);
  for (int i = 0; i <= kBefore; ++i) {
    auto request = transport::read_one_frame(server.get(), {}, Clock::now() + 20s);
    ASSERT_TRUE(request.ok());
    if (i < kBefore) continue;
    ASSERT_EQ(request->header.opcode, kEcho);
    wire::FrameHeader reply = request->header;
    reply.flags = wire::kReply;
    reply.body_bytes = 0;
    ASSERT_EQ(::send(server.get(), &reply, sizeof reply, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof reply));
  }
  caller.join();
}

TEST(ChannelByHand, ForkedChildLetsGoAndTheParentGoesOn) {
  TransportKind tcp{"tcp",
                    [](const transport::StreamOptions& options) { return make_tcp_pair(options); }};
  ChannelFixture f(tcp);
  Reply before;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 1, before).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    f.channel->abandon_after_fork();
    Reply reply;
    const bool refused = call_with(*f.channel, kEcho, 1, reply).code() == StatusCode::kLost &&
                         send_with(*f.channel, kCount, 1).code() == StatusCode::kLost &&
                         f.channel->lost();
    f.channel->close(Clock::now() + 1s);
    f.channel.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Reply after;
  ASSERT_TRUE(call_with(*f.channel, kEcho, 2, after).ok());
  EXPECT_EQ(value_of(after), 2u);
}

TEST(ChannelByHand, DroppedConnection) {
  transport::LoopbackOptions options;
  options.second_faults.drop_at_frame = 3;
  auto [client, server] = transport::make_loopback_pair(options);
  auto sum = std::make_shared<std::atomic<int64_t>>(0);
  ChannelFixture f({std::move(client), std::move(server)}, {}, usual_script(sum));
  for (int i = 0; i < 2; ++i) {
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kEcho, 1, reply).ok());
  }
  Reply reply;
  EXPECT_EQ(call_with(*f.channel, kEcho, 1, reply).code(), StatusCode::kLost);
}

TEST(ChannelByHand, SlowLinkOnlyTakesLonger) {
  transport::LoopbackOptions options;
  options.first_faults.delay = options.second_faults.delay = 3ms;
  auto [client, server] = transport::make_loopback_pair(options);
  auto sum = std::make_shared<std::atomic<int64_t>>(0);
  ChannelFixture f({std::move(client), std::move(server)}, {}, usual_script(sum));
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(send_with(*f.channel, kCount, 1).ok());
    const auto begin = Clock::now();
    Reply reply;
    ASSERT_TRUE(call_with(*f.channel, kSum, 0, reply).ok());
    EXPECT_EQ(value_of(reply), i + 1);
    EXPECT_GE(Clock::now() - begin, 6ms);
  }
}

}  // namespace
}  // namespace fargpu::test
