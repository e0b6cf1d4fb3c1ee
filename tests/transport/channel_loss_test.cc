// A channel's connection and its session are lost apart: what is asked when the connection is lost,
// what goes on if another one takes its place, and what ends the session at once.
#include <gtest/gtest.h>

#include <thread>

#include "common/transport/loopback/loopback.h"
#include "common/wire/control.h"
#include "tests/transport/channel_testing.h"
#include "tests/transport/switched_transport.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Channel;
using rpc::Reply;
using transport::Clock;

class ChannelLossTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  // What a reply is read with could throw in its destructor, which GoogleTest's class rules out.
  ~ChannelLossTest() noexcept override = default;

  // `script`: of the first server.
  void connect(ScriptedServer::Script script, rpc::ChannelOptions options = {},
               std::function<bool(const Status&)> when_lost = {}) {
    TransportPair pair = GetParam().make({});
    auto transport = std::make_unique<SwitchedTransport>(std::move(pair.client));
    switched_ = transport.get();
    switched_->when_lost(std::move(when_lost));
    server_ = std::make_unique<ScriptedServer>(std::move(pair.server), std::move(script));
    channel_ = std::make_unique<Channel>(std::move(transport), sink_, options);
  }
  // The server takes the call and keeps its answer.
  ScriptedServer::Script keeper() {
    return [this](rpc::Responder&, const ReceivedFrame& request) {
      if (request.header.opcode == kEcho) {
        kept_ = request.header;
        has_kept_ = true;
      }
      return Status();
    };
  }
  // A second connection, over which the answer that was kept comes, and further calls go.
  bool reconnect() {
    if (second_ == nullptr) {
      TransportPair pair = GetParam().make({});
      rpc::Responder responder(*pair.server);
      EXPECT_TRUE(responder.reply(kept_, 7).ok());
      EXPECT_TRUE(responder.flush().ok());
      second_ = std::make_unique<ScriptedServer>(
          std::move(pair.server), usual_script(std::make_shared<std::atomic<int64_t>>(0)));
      switched_->add(std::move(pair.client));
    }
    return switched_->go_on();
  }
  // A thread that waits for the answer.
  std::thread call() {
    std::thread caller([this] { status_ = call_with(*channel_, kEcho, 1, reply_); });
    EXPECT_TRUE(eventually([this] { return has_kept_.load(); }));
    return caller;
  }
  void expect_the_session_goes_on() {
    EXPECT_TRUE(status_.ok()) << status_.message();
    EXPECT_EQ(reply_.result, 7);
    Reply next;
    ASSERT_TRUE(call_with(*channel_, kEcho, 5, next).ok());
    EXPECT_EQ(value_of(next), 5u);
    EXPECT_FALSE(channel_->lost());
    EXPECT_EQ(lost(), 0);
    EXPECT_GE(switched_->losses(), 1);
  }

  int lost() { return sink_.get(&RecordingSink::losses); }

  RecordingSink sink_;
  wire::FrameHeader kept_;
  std::atomic<bool> has_kept_{false};
  std::unique_ptr<ScriptedServer> server_, second_;
  SwitchedTransport* switched_ = nullptr;
  Reply reply_;
  Status status_;
  std::unique_ptr<Channel> channel_;
};

TEST_P(ChannelLossTest, AWaitingCallOutlivesItsConnection) {
  connect(keeper(), {}, [this](const Status& why) {
    EXPECT_EQ(why.code(), StatusCode::kLost);
    return reconnect();
  });
  std::thread caller = call();
  server_->stop();
  caller.join();
  expect_the_session_goes_on();
}

TEST_P(ChannelLossTest, AnIdleSessionOutlivesItsConnection) {
  connect(usual_script(std::make_shared<std::atomic<int64_t>>(0)));
  TransportPair pair = GetParam().make({});
  second_ = std::make_unique<ScriptedServer>(
      std::move(pair.server), usual_script(std::make_shared<std::atomic<int64_t>>(0)));
  switched_->add(std::move(pair.client));
  Reply before;
  ASSERT_TRUE(call_with(*channel_, kEcho, 1, before).ok());
  server_->stop();
  ASSERT_TRUE(eventually([this] { return switched_->losses() > 0; }));
  Reply after;
  ASSERT_TRUE(call_with(*channel_, kEcho, 2, after).ok());
  EXPECT_EQ(value_of(after), 2u);
  EXPECT_EQ(lost(), 0);
}

// The connection still stands; its server says nothing.
TEST_P(ChannelLossTest, ASilentServerIsALostConnection) {
  connect(keeper(), {.keepalive = 40ms}, [this](const Status& why) {
    // Then the caller notices that its connection was closed.
    if (why.message().find("not answered") != std::string::npos) switched_->give_up();
    return reconnect();
  });
  std::thread caller = call();
  server_->pause(true);
  caller.join();
  expect_the_session_goes_on();
}

TEST_P(ChannelLossTest, WithoutAnotherConnectionTheSessionEndsOnce) {
  connect(keeper());
  std::thread caller = call();
  server_->stop();
  caller.join();
  EXPECT_EQ(status_.code(), StatusCode::kLost);
  EXPECT_TRUE(eventually([this] { return lost() == 1; }));
  EXPECT_GE(switched_->losses(), 1);
  EXPECT_TRUE(channel_->lost());
  EXPECT_EQ(send_with(*channel_, kCount, 1).code(), StatusCode::kLost);
}

TEST_P(ChannelLossTest, AServerThatBreaksTheRulesEndsTheSessionAndNobodyIsAsked) {
  connect([](rpc::Responder& responder, const ReceivedFrame& request) {
    wire::FrameHeader other = request.header;
    other.sequence += 100;
    return responder.reply(other, 0);
  });
  Reply reply;
  EXPECT_EQ(call_with(*channel_, kEcho, 1, reply).code(), StatusCode::kLost);
  EXPECT_TRUE(eventually([this] { return lost() == 1; }));
  EXPECT_EQ(switched_->losses(), 0);
}

TEST_P(ChannelLossTest, AnEndThatWeMakeAsksNobody) {
  connect(usual_script(std::make_shared<std::atomic<int64_t>>(0)));
  Reply reply;
  ASSERT_TRUE(call_with(*channel_, kEcho, 1, reply).ok());
  std::thread stops([this] {
    eventually([this] { return server_->frames() > 1; });
    server_->stop();
  });
  channel_->close(Clock::now() + 5s);
  stops.join();
  EXPECT_EQ(switched_->losses(), 0);
  EXPECT_EQ(lost(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChannelLossTest, ::testing::ValuesIn(transport_kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
