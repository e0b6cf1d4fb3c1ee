// The bulk connection of a channel: calls never wait for it, and its end is the session's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "common/transport/link/emulated_link.h"
#include "tests/transport/channel_testing.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Channel;
using rpc::Reply;
using transport::Clock;

constexpr uint16_t kBulk = 200;  // opcode of what is sent beside
constexpr size_t kLarge = 8 << 20, kMany = 8;

class BulkConnection : public ::testing::TestWithParam<TransportKind> {
 protected:
  explicit BulkConnection(std::chrono::milliseconds keepalive = 5000ms) {
    transport::StreamOptions stream;
    stream.stall_timeout = transport::StreamOptions::kNeverStalls;
    TransportPair calls = GetParam().make(stream), bulk = GetParam().make(stream);
    server_ = std::make_unique<ScriptedServer>(
        std::move(calls.server), usual_script(std::make_shared<std::atomic<int64_t>>(0)));
    far_ = std::move(bulk.server);
    channel_ = std::make_unique<Channel>(std::move(calls.client), sink_,
                                         rpc::ChannelOptions{.keepalive = keepalive},
                                         std::move(bulk.client));
  }
  ~BulkConnection() override {
    channel_->close(Clock::now() + 200ms);  // the sender may be inside: it ends first
    if (sender_.joinable()) sender_.join();
  }

  // More than the connection takes while its other end is not read.
  void send_much() {
    sender_ = std::thread([this] {
      for (uint32_t i = 0; i < kMany; ++i) {
        const auto bulk = pattern(kLarge, i);
        const uint64_t number[] = {i};
        if (!channel_->send_beside(kBulk, std::as_bytes(std::span(number)), bulk).ok()) break;
        ++sent_;
      }
      over_ = true;
    });
  }
  bool stands_still() {
    return eventually([this, before = size_t{99}]() mutable {
      const size_t now = sent_;
      std::this_thread::sleep_for(50ms);
      return now < kMany && std::exchange(before, now) == now;
    });
  }
  bool is_lost_with(const std::string& text) {
    return eventually([this] { return sink_.get(&RecordingSink::losses) == 1; }) &&
           sink_.get(&RecordingSink::lost_why).message().find(text) != std::string::npos;
  }

  RecordingSink sink_;
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<transport::Transport> far_;  // the server's end of the bulk connection
  std::unique_ptr<Channel> channel_;
  std::thread sender_;
  std::atomic<size_t> sent_{0};
  std::atomic<bool> over_{false};
};

class Collector final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    bulk_.resize(header.bulk_bytes);
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override {
    uint64_t number = 99;
    if (body.size() == sizeof number) std::memcpy(&number, body.data(), sizeof number);
    if (header.opcode == kBulk && header.flags == 0 && header.sequence == frames + 1 &&
        number == frames && same(bulk, pattern(kLarge, static_cast<uint32_t>(number))))
      ++right;
    ++frames;
    return Status();
  }
  size_t frames = 0, right = 0;

 private:
  std::vector<std::byte> bulk_;
};

TEST_P(BulkConnection, CallsPassWhatWaitsThere) {
  send_much();
  ASSERT_TRUE(stands_still());
  for (uint64_t i = 0; i < 100; ++i) {
    Reply reply;
    ASSERT_TRUE(call_with(*channel_, kEcho, i, reply).ok());
    EXPECT_EQ(value_of(reply), i);
    ASSERT_TRUE(send_with(*channel_, kCount, i).ok());
  }
  EXPECT_FALSE(over_);
  Collector collector;
  while (collector.frames < kMany) ASSERT_TRUE(far_->receive(collector, Clock::now() + 20s).ok());
  EXPECT_EQ(collector.right, kMany) << "whole, and in their order";
  EXPECT_TRUE(eventually([this] { return over_.load(); }));
  EXPECT_EQ(sent_, kMany);
  EXPECT_FALSE(channel_->lost());
}

TEST_P(BulkConnection, ItsEndIsTheSessions) {
  send_much();
  ASSERT_TRUE(stands_still());
  far_->close();
  EXPECT_TRUE(is_lost_with("bulk connection has ended")) << channel_->why_lost().message();
  EXPECT_TRUE(eventually([this] { return over_.load(); }));
  Reply reply;
  EXPECT_EQ(call_with(*channel_, kEcho, 1, reply).code(), StatusCode::kLost);
  EXPECT_EQ(channel_->send_beside(kBulk, {}, {}).code(), StatusCode::kLost);
}

TEST_P(BulkConnection, ItsEndIsSeenWhileNothingIsSent) {
  far_->close();
  EXPECT_TRUE(is_lost_with("bulk connection has ended")) << channel_->why_lost().message();
}

TEST_P(BulkConnection, TheEndOfTheOtherOneEndsWhatWaitsThere) {
  send_much();
  ASSERT_TRUE(stands_still());
  server_->stop();
  EXPECT_TRUE(eventually([this] { return over_.load(); }));
  EXPECT_TRUE(channel_->lost());
  EXPECT_EQ(channel_->why_lost().message().find("bulk"), std::string::npos)
      << channel_->why_lost().message();
}

// What the server said before it ended is read, although both connections end at once.
TEST_P(BulkConnection, LastWordsAreHeardAfterItsEnd) {
  far_->close();
  Reply reply;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(call_with(*channel_, kNotify, 1, reply).ok());
  server_->stop();
  ASSERT_TRUE(eventually([this] { return sink_.get(&RecordingSink::losses) == 1; }));
  EXPECT_EQ(sink_.get(&RecordingSink::notices).size(), 10u);
}

TEST_P(BulkConnection, ASessionThatHearsSomethingGoesOnAfterItsEnd) {
  far_->close();
  for (uint64_t i = 0; i < 20; ++i) {
    Reply reply;
    ASSERT_TRUE(call_with(*channel_, kEcho, i, reply).ok()) << channel_->why_lost().message();
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(is_lost_with("bulk connection has ended")) << channel_->why_lost().message();
}

TEST_P(BulkConnection, AFrameFromTheServerEndsTheSession) {
  ASSERT_TRUE(send_frame(*far_, 1, 8, 0).ok());
  ASSERT_TRUE(far_->flush(Clock::now() + 20s).ok());
  EXPECT_TRUE(is_lost_with("sent a frame on the bulk connection that is not delivery 1"))
      << channel_->why_lost().message();
}

TEST_P(BulkConnection, DoesNotDelayTheBye) {
  send_much();
  ASSERT_TRUE(stands_still());
  const uint64_t before = server_->frames();
  channel_->close(Clock::now() + 200ms);
  EXPECT_TRUE(eventually([&] { return server_->frames() == before + 1; }));
  EXPECT_TRUE(eventually([this] { return over_.load(); }));
  EXPECT_EQ(sink_.get(&RecordingSink::losses), 0) << "it was closed, not lost";
}

class WatchedBulkConnection : public BulkConnection {
 protected:
  WatchedBulkConnection() : BulkConnection(100ms) {}
};

// Nobody calls: only the sender waits.
TEST_P(WatchedBulkConnection, ASilentServerIsLostWhileBulkWaits) {
  server_->pause(true);
  send_much();
  EXPECT_TRUE(is_lost_with("not answered")) << channel_->why_lost().message();
  EXPECT_TRUE(eventually([this] { return over_.load(); }));
}

TEST_P(WatchedBulkConnection, ALivingServerMayTakeItsTime) {
  send_much();
  ASSERT_TRUE(stands_still());
  std::this_thread::sleep_for(1s);  // longer than three keepalive periods
  EXPECT_FALSE(channel_->lost()) << channel_->why_lost().message();
}

TEST_P(BulkConnection, AForkedChildLetsGoOfIt) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    channel_->abandon_after_fork();
    const bool refused = channel_->send_beside(kBulk, {}, {}).code() == StatusCode::kLost;
    channel_.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(channel_->lost());
  ASSERT_TRUE(channel_->send_beside(kBulk, {}, {}).ok());
  Collector collector;
  ASSERT_TRUE(far_->receive(collector, Clock::now() + 20s).ok());
  EXPECT_EQ(collector.frames, 1u);
}

std::vector<TransportKind> stream_kinds() {
  return {
      {"tcp", [](const auto& options) { return make_tcp_pair(options); }},
      {"several", [](const auto& options) { return make_tcp_pair(options, 3); }},
      {"emulated",
       [](const auto& options) {
         TransportPair pair = make_tcp_pair(options);
         return TransportPair{
             transport::emulate_link(std::move(pair.client), *transport::parse_link("rtt=1ms")),
             std::move(pair.server)};
       }},
  };
}

INSTANTIATE_TEST_SUITE_P(Kinds, BulkConnection, ::testing::ValuesIn(stream_kinds()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Kinds, WatchedBulkConnection, ::testing::ValuesIn(stream_kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
