// The daemon's end of the socket to a worker, with workers that do what they should not.
#include "server/daemon/worker_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using transport::Clock;

class WorkerLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sockets = make_control_sockets();
    ASSERT_TRUE(sockets.ok());
    worker_ = std::move(sockets->second);
    link_ = std::make_shared<WorkerLink>(loop_, std::move(sockets->first));
    link_->start([this](const Status& why) { broken_ = why; },
                 [this](uint64_t session) {
                   asked_for_ = session;
                   return std::move(given_);
                 });
  }
  void TearDown() override { link_->close(); }

  void say(const MessageBytes& message) {
    ASSERT_TRUE(send_message(worker_.get(), message, Clock::now()).ok());
  }
  ReceivedMessage heard() {
    auto message = receive_message(worker_.get(), Clock::now());
    EXPECT_TRUE(message.ok()) << message.status().message();
    return message.ok() ? *message : ReceivedMessage{};
  }
  // The worker asks for a socket to the session's, and would be given one end of a pair. *got: what
  // it was given; the other end comes back.
  ReceivedMessage connect(uint64_t session, Fd* got, Fd* other = nullptr) {
    auto pair = make_control_sockets();
    EXPECT_TRUE(pair.ok());
    given_ = std::move(pair->first);
    if (other != nullptr) *other = std::move(pair->second);
    say(encode_peer(WorkerMessage::kConnectPeer, session, 6));
    turn();
    auto answer = receive_message(worker_.get(), Clock::now(), got);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? *answer : ReceivedMessage{};
  }
  WorkerLink::OnAnswer keep() {
    return [this](const Result<WorkerReport>& report) { answers_.push_back(report); };
  }
  void turn() {
    loop_.restart();
    loop_.poll();
  }
  void turn_for(milliseconds time) {
    loop_.restart();
    loop_.run_for(time);
  }

  boost::asio::io_context loop_;
  Fd worker_;
  std::shared_ptr<WorkerLink> link_;
  Status broken_;
  const int given_descriptor_ = 0;
  uint64_t asked_for_ = 0;  // the session to which the worker wants a socket, and what it is given
  Fd given_;
  std::vector<Result<WorkerReport>> answers_;
};

TEST_F(WorkerLinkTest, AnswersFindTheirQuestions) {
  say(encode_started());
  link_->ask(WorkerMessage::kStop, seconds(60), keep());
  link_->ask(WorkerMessage::kDrain, seconds(60), keep());
  const ReceivedMessage stop = heard(), drain = heard();
  EXPECT_EQ(kind_of(stop), WorkerMessage::kStop);
  EXPECT_EQ(parse_drain(drain.body())->count(), 60000);
  say(encode_report(drain.header, {.calls = 2}));
  say(encode_report(stop.header, {.calls = 1}));
  turn();
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0]->calls, 2u);
  EXPECT_EQ(answers_[1]->calls, 1u);
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AWorkerIsToldWhenOthersHaveEnded) {
  std::vector<std::function<void()>> open;
  link_->start([this](const Status& why) { broken_ = why; }, nullptr, nullptr,
               [&open](std::function<void()> done) { open.push_back(std::move(done)); });
  say(encode_started());
  say(encode_await_ended(7));
  turn();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(receive_message(worker_.get(), Clock::now()).status().code(), StatusCode::kTimeout);
  open[0]();
  const ReceivedMessage told = heard();
  EXPECT_EQ(kind_of(told), WorkerMessage::kAwaitEnded);
  EXPECT_TRUE(told.is_reply());
  EXPECT_EQ(told.header.sequence, 7u);
}

TEST_F(WorkerLinkTest, AWorkerThatAsksAndAsksIsAnsweredAtOnce) {
  std::vector<std::function<void()>> open;
  link_->start([this](const Status& why) { broken_ = why; }, nullptr, nullptr,
               [&open](std::function<void()> done) { open.push_back(std::move(done)); });
  say(encode_started());
  for (uint32_t i = 0; i < 100; ++i) {
    say(encode_await_ended(i));
    turn();
  }
  EXPECT_TRUE(broken_.ok());
  EXPECT_LT(open.size(), 10u);
  EXPECT_EQ(heard().header.sequence, static_cast<uint32_t>(open.size()));
  link_->close();
  for (const auto& done : open) done();  // too late, and nothing
}

TEST_F(WorkerLinkTest, LastWordsAreTheBeginningOfTheEnd) {
  say(encode_started());
  turn();
  EXPECT_FALSE(link_->ending());
  say(encode_last_words({"the client said bye"}));
  turn();
  EXPECT_TRUE(link_->ending());
}

TEST_F(WorkerLinkTest, AWorkerThatIsStartedAheadSaysOnceThatItIsReady) {
  int ready = 0, settled = 0;
  ASSERT_TRUE(link_->send_prepare({}, [&](const Status& status) { ready += status.ok(); }).ok());
  EXPECT_EQ(kind_of(heard()), WorkerMessage::kPrepare);
  say(encode_started());
  say(encode_prepared(Status()));
  say(encode_prepared(Status()));
  say(encode_settled());
  turn();
  EXPECT_EQ(ready, 1);

  Fd one;
  ASSERT_TRUE(link_->send_start(WorkerOptions{}, std::span(&given_descriptor_, 1)).ok());
  ASSERT_TRUE(receive_message(worker_.get(), Clock::now(), &one).ok());
  EXPECT_TRUE(one.valid());
  link_->start([this](const Status& why) { broken_ = why; }, nullptr, [&] { ++settled; });
  say(encode_settled());
  say(encode_settled());
  turn();
  EXPECT_EQ(settled, 1);
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AWorkerThatBecomesReadyAfterACommandDoesNotAnswerThat) {
  ASSERT_TRUE(link_->send_prepare({}, nullptr).ok());
  EXPECT_EQ(kind_of(heard()), WorkerMessage::kPrepare);
  say(encode_started());
  ASSERT_TRUE(link_->send_start(WorkerOptions{}, std::span(&given_descriptor_, 1)).ok());
  Fd one;
  ASSERT_TRUE(receive_message(worker_.get(), Clock::now(), &one).ok());
  link_->ask(WorkerMessage::kReport, seconds(60), keep());
  const ReceivedMessage report = heard();
  say(encode_prepared(Status()));
  turn();
  EXPECT_TRUE(answers_.empty());
  EXPECT_TRUE(broken_.ok()) << broken_.message();
  say(encode_report(report.header, {.calls = 5}));
  turn();
  ASSERT_EQ(answers_.size(), 1u);
  ASSERT_TRUE(answers_[0].ok());
  EXPECT_EQ(answers_[0]->calls, 5u);
}

TEST_F(WorkerLinkTest, AnAnswerOfAWorkerAheadThatIsNoneBreaksIt) {
  ASSERT_TRUE(link_->send_prepare({}, nullptr).ok());
  say(encode_started());
  wire::FrameHeader header = heard().header;
  header.flags = wire::kReply;
  header.body_bytes = 0;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  say({bytes.begin(), bytes.end()});
  turn();
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
}

TEST_F(WorkerLinkTest, AWorkerThatDoesNotAnswerIsNotWaitedFor) {
  say(encode_started());
  link_->ask(WorkerMessage::kReport, milliseconds(20), keep());
  turn_for(milliseconds(300));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kTimeout);
  say(encode_report(heard().header, {}));  // late, but asked for
  turn();
  EXPECT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AWorkerThatDoesNotReadIsNotWaitedFor) {
  for (size_t i = 0; i < WorkerLink::kMostUnanswered + 3; ++i)
    link_->ask(WorkerMessage::kReport, seconds(60), keep());
  turn();
  ASSERT_GE(answers_.size(), 3u);
  for (const auto& answer : answers_) EXPECT_EQ(answer.status().code(), StatusCode::kNoCapacity);
}

TEST_F(WorkerLinkTest, AnOlderWorkerSaysWhatItDoesNotKnow) {
  say(encode_started());
  link_->ask(WorkerMessage::kStop, seconds(60), keep());
  say(encode_unknown(heard().header));
  turn();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, ANewerWorkerMaySayWhatNobodyKnows) {
  say(encode_started());
  for (int i = 0; i < 3; ++i) say(encode_command(static_cast<WorkerMessage>(99), 0));
  link_->ask(WorkerMessage::kReport, seconds(60), keep());
  say(encode_report(heard().header, {.calls = 5}));
  turn();
  EXPECT_TRUE(broken_.ok());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0]->calls, 5u);
}

TEST_F(WorkerLinkTest, AFloodIsNotEndured) {
  say(encode_started());
  for (size_t i = 0; i < 10 * WorkerLink::kMostUnasked && broken_.ok(); ++i) {
    say(encode_report({.opcode = 4, .sequence = 77}, {}));
    turn();
  }
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
  EXPECT_THAT(broken_.message(), HasSubstr("nobody asked"));
}

TEST_F(WorkerLinkTest, MalformedMessagesBreakIt) {
  say(encode_command(WorkerMessage::kReport, 1));  // instead of Started
  turn();
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
}

TEST_F(WorkerLinkTest, GarbageBreaksItOnce) {
  say(encode_started());
  say(MessageBytes(64, std::byte{0xff}));
  say(MessageBytes(24));
  turn();
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
  EXPECT_THAT(broken_.message(), HasSubstr("does not speak fargpu"));
  broken_ = Status();
  turn();
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AReportThatIsNoneBreaksItAndIsAnAnswer) {
  say(encode_started());
  link_->ask(WorkerMessage::kReport, seconds(60), keep());
  wire::FrameHeader header = heard().header;
  header.flags = wire::kReply;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  say({bytes.begin(), bytes.end()});
  turn();
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].status().code(), StatusCode::kProtocol);
}

TEST_F(WorkerLinkTest, TheEndTakesLastWordsAndAnswersWhatIsOpen) {
  say(encode_started());
  link_->ask(WorkerMessage::kDrain, seconds(60), keep());
  say(encode_last_words({"the client said bye"}));
  worker_.reset();
  link_->close();
  EXPECT_EQ(link_->last_words().reason, "the client said bye");
  link_->ask(WorkerMessage::kStop, seconds(60), keep());
  turn();
  ASSERT_EQ(answers_.size(), 2u);
  for (const auto& answer : answers_) EXPECT_EQ(answer.status().code(), StatusCode::kLost);
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AWorkerIsConnectedToWhomTheDaemonAllows) {
  say(encode_started());
  say(encode_peer(WorkerMessage::kConnectPeer, 17, 5));
  turn();
  EXPECT_EQ(asked_for_, 17u);
  const ReceivedMessage refused = heard();
  EXPECT_EQ(refused.header.sequence, 5u);
  EXPECT_EQ(refused.header.result, kNoSuchSession);

  Fd got, other;
  const ReceivedMessage answer = connect(18, &got, &other);
  ASSERT_TRUE(got.valid());
  EXPECT_EQ(answer.header.result, 0);
  EXPECT_TRUE(send_message(got.get(), encode_started(), Clock::now()).ok());
  EXPECT_TRUE(receive_message(other.get(), Clock::now()).ok());
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, AWorkerIsGivenAPeerWhenItKnowsOfThat) {
  auto pair = make_control_sockets();
  ASSERT_TRUE(pair.ok());
  EXPECT_FALSE(link_->send_peer(19, pair->first));  // it has not said its version
  say(encode_started());
  turn();
  EXPECT_TRUE(link_->send_peer(19, pair->first));
  Fd got;
  const auto told = receive_message(worker_.get(), Clock::now(), &got);
  ASSERT_TRUE(told.ok() && got.valid());
  EXPECT_EQ(kind_of(*told), WorkerMessage::kPeerConnected);
  EXPECT_EQ(*parse_peer(told->body()), 19u);
}

TEST_F(WorkerLinkTest, AWorkerIsConnectedToEachSessionOnce) {
  say(encode_started());
  for (const bool first : {true, false, false}) {
    Fd got;
    const ReceivedMessage answer = connect(18, &got);
    EXPECT_EQ(got.valid(), first);
    EXPECT_EQ(answer.header.result, first ? 0 : kNoSuchSession);
  }
  // Sessions that are not there may be asked for without end.
  given_ = Fd();
  for (int i = 0; i < 5000; ++i) {
    say(encode_peer(WorkerMessage::kConnectPeer, 100 + i, 7));
    turn();
    EXPECT_EQ(heard().header.result, kNoSuchSession);
  }
  EXPECT_TRUE(broken_.ok());
}

TEST_F(WorkerLinkTest, ImagesAreTheSessionsUntilItsLinkIsClosed) {
  const TenantId tenant{"a"};
  ImageBroker images(loop_, {"", 1 << 20, 1, 1});
  link_->serve_images(images, 5, tenant);
  say(encode_started());
  say(encode_begin_image(1, 100));
  turn();
  Fd memory;
  EXPECT_EQ(receive_message(worker_.get(), Clock::now(), &memory)->header.result, 0);
  EXPECT_TRUE(memory.valid());
  EXPECT_GT(images.upload_bytes(tenant), 0u);
  for (int i = 0; i < 1000; ++i) {
    say(encode_end_image(9));
    turn();
  }
  EXPECT_TRUE(broken_.ok()) << "no limit of these";
  say(encode_peer(WorkerMessage::kFindImage, 5));
  turn();
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
  link_->close();
  EXPECT_EQ(images.upload_bytes(tenant), 0u);
}

TEST_F(WorkerLinkTest, AWorkerWithoutASessionGetsNoImages) {
  say(encode_started());
  for (size_t i = 0; i <= WorkerLink::kMostUnasked; ++i) {
    say(encode_begin_image(1, 100));
    turn();
  }
  EXPECT_EQ(broken_.code(), StatusCode::kProtocol);
}

}  // namespace
}  // namespace fargpu::server
