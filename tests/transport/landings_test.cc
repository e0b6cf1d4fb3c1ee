// Deliveries on the bulk connection of a channel: what may be known before their bytes are there,
// and what may not.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <test_messages.capnp.h>
#include <unistd.h>

#include <condition_variable>
#include <thread>

#include "common/wire/control.h"
#include "tests/transport/channel_testing.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using rpc::Channel;
using rpc::ChannelOptions;
using rpc::Reply;
using transport::Clock;
using transport::kNoDeadline;

// Calls of the script whose success tells nothing, beside kSum.
enum : uint16_t {
  kAnnounce = 120,  // first the number of a delivery, which is the body's, then a reply
  kSmall = 121,     // first a delivery in a frame, with the request's body and bulk, then a reply
  kSay = 122,       // first the notice kQueueReached, then a reply
  kPrint = 123,     // first the notice kOutput with the request's bulk, then a reply
};
constexpr int32_t kNotReady = 600, kLaunchFailed = 719;
constexpr size_t kArea = 4 << 20;
constexpr auto kWhile = 60ms;

uint64_t number_in(Bytes body) {
  wire::SegmentReader reader(body);
  return reader.getRoot<Number>().getValue();
}

// Deliveries go to an area, at the offset that their body says.
class Area final : public rpc::NoticeSink {
 public:
  Result<std::span<std::byte>> notice_buffer(const wire::FrameHeader& header,
                                             rpc::Bytes body) override {
    if (header.opcode != wire::kDelivery || !places) return std::span<std::byte>();
    return std::span(bytes).subspan(number_in(body), header.bulk_bytes);
  }
  Status on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) override {
    if (header.opcode == wire::kDelivery && !places)
      std::copy(bulk.begin(), bulk.end(), bytes.begin() + static_cast<int64_t>(number_in(body)));
    inside = true;
    while (holds) std::this_thread::sleep_for(1ms);
    const std::lock_guard lock(mutex);
    if (bulk.size() >= sizeof last_word)
      std::memcpy(&last_word, bulk.data() + bulk.size() - sizeof last_word, sizeof last_word);
    seen.push_back(header.opcode);
    count = seen.size();
    return refuses == header.opcode ? Status(StatusCode::kProtocol, "it was refused") : Status();
  }
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t result) override {
    const std::lock_guard lock(mutex);
    seen.push_back(static_cast<uint16_t>(result));
    count = seen.size();
  }
  bool awaits_notices() const override { return true; }
  void on_lost(const Status& status) override {
    const std::lock_guard lock(mutex);
    why = status;
    ++losses;
  }
  // Of the last notice with bulk.
  uint32_t word() {
    const std::lock_guard lock(mutex);
    return last_word;
  }
  std::vector<uint16_t> order() {
    const std::lock_guard lock(mutex);
    return seen;
  }
  std::string lost_why() {
    const std::lock_guard lock(mutex);
    return why.message();
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(kArea);
  bool places = true;                             // else they pass through memory of the channel
  uint16_t refuses = 0;                           // a notice
  std::atomic<bool> holds{false}, inside{false};  // a notice is being handled
  std::atomic<int> losses{0};
  std::atomic<size_t> count{0};

 private:
  std::mutex mutex;
  std::vector<uint16_t> seen;  // opcodes of notices and results of asynchronous errors
  Status why;
  uint32_t last_word = 0;
};

class LandingsTest : public ::testing::TestWithParam<size_t> {
 protected:
  void start(ChannelOptions options = {}) {
    TransportPair calls = make_tcp_pair({}), bulk = make_tcp_pair({}, GetParam());
    server_ = std::make_unique<ScriptedServer>(
        std::move(calls.server), [this](rpc::Responder& responder, const ReceivedFrame& request) {
          return answer(responder, request);
        });
    far_ = std::move(bulk.server);
    options.tells_nothing = [](uint16_t opcode) { return opcode >= kAnnounce || opcode == kSum; };
    channel_ =
        std::make_unique<Channel>(std::move(calls.client), area_, options, std::move(bulk.client));
  }
  ~LandingsTest() override { end(); }
  // A class whose threads or answers use members of its own calls it in its destructor.
  void end() {
    if (channel_ != nullptr) channel_->close(Clock::now() + 200ms);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    channel_.reset();
    far_.reset();
    server_.reset();
  }

  virtual Status answer(rpc::Responder& responder, const ReceivedFrame& request) {
    const std::span<const std::byte> bulk(request.bulk);
    switch (request.header.opcode) {
      case kAnnounce:
        FARGPU_RETURN_IF_ERROR(responder.notice(wire::kDeliveryBeside,
                                                static_cast<uint32_t>(number_in(request.body))));
        return responder.reply(request.header, 0);
      case kSmall: {
        rpc::Responder::Frame notice(responder, wire::kDelivery, 64);
        notice.init<Number>().setValue(number_in(request.body));
        FARGPU_RETURN_IF_ERROR(notice.send(0, std::span(&bulk, 1)));
        return responder.reply(request.header, 0);
      }
      case kSay:
        FARGPU_RETURN_IF_ERROR(responder.notice(wire::kQueueReached, 0));
        return responder.reply(request.header, 0);
      case kPrint: {
        rpc::Responder::Frame notice(responder, wire::kOutput, 0);
        FARGPU_RETURN_IF_ERROR(notice.send(0, std::span(&bulk, 1)));
        return responder.reply(request.header, 0);
      }
      default:
        return usual_(responder, request);
    }
  }

  void call(uint16_t opcode, uint64_t value = 0, const std::vector<std::byte>& bulk = {}) {
    Reply reply;
    const Bytes piece(bulk);
    ASSERT_TRUE(call_with(*channel_, opcode, value, reply,
                          bulk.empty() ? std::span<const Bytes>() : std::span(&piece, 1))
                    .ok());
  }
  void announce(uint64_t number) { call(kAnnounce, number); }

  static wire::FrameHeader delivery(uint32_t number, uint64_t bytes) {
    wire::FrameHeader header;
    header.opcode = wire::kDelivery;
    header.flags = wire::kNotice;
    header.sequence = number;
    header.bulk_bytes = bytes;
    return header;
  }
  // A frame of the server on the bulk connection.
  void send_beside(wire::FrameHeader header, uint64_t offset, Bytes bulk) {
    alignas(8) std::byte memory[64];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    builder.initRoot<Number>().setValue(offset);
    header.body_bytes = static_cast<uint32_t>(builder.used_bytes());
    const size_t bytes = sizeof header + header.body_bytes;
    const auto slot = far_->reserve(bytes, kNoDeadline);
    ASSERT_TRUE(slot.ok());
    std::memcpy(slot->data(), &header, sizeof header);
    std::memcpy(slot->data() + sizeof header, memory, header.body_bytes);
    ASSERT_TRUE(far_->commit(bytes, std::span(&bulk, bulk.empty() ? 0 : 1), kNoDeadline).ok());
    ASSERT_TRUE(far_->flush(kNoDeadline).ok());
  }
  void deliver(uint32_t number, uint64_t offset, const std::vector<std::byte>& bytes) {
    send_beside(delivery(number, bytes.size()), offset, bytes);
  }
  bool is_there(uint64_t offset, const std::vector<std::byte>& bytes) const {
    return same(Bytes(area_.bytes).subspan(offset, bytes.size()), bytes);
  }
  // The call has its answer, and how the session was then.
  struct Outcome {
    std::atomic<bool> over{false};
    Status status;
    bool there = false;  // the bytes
    int losses = 0;
  };
  template <typename Function>
  void on_thread(Function function) {
    threads_.emplace_back(std::move(function));
  }
  void ask(Outcome& outcome, uint16_t opcode = kEcho, uint64_t value = 0) {
    on_thread([this, &outcome, opcode, value] {
      Reply reply;
      outcome.status = call_with(*channel_, opcode, value, reply);
      outcome.there = is_there(0, large_);
      outcome.losses = area_.losses;
      outcome.over = true;
    });
  }

  const std::vector<std::byte> large_ = pattern(2 << 20, 1), small_ = pattern(1000, 2);
  Area area_;
  ScriptedServer::Script usual_ = usual_script(std::make_shared<std::atomic<int64_t>>(0));
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<transport::Transport> far_;  // the server's end of the bulk connection
  std::unique_ptr<Channel> channel_;
  std::vector<std::thread> threads_;
};

TEST_P(LandingsTest, WhatMayTellWaitsAndWhatTellsNothingPasses) {
  start();
  announce(1);
  Outcome waits, fails;
  ask(waits);
  ask(fails, kFail, kLaunchFailed);
  for (int i = 0; i < 200; ++i) call(kSum);
  call(kFail, kNotReady);
  EXPECT_EQ(channel_->ping(Clock::now() + 100ms).code(), StatusCode::kTimeout)
      << "it brings errors to light, which are kept";
  std::this_thread::sleep_for(kWhile);
  call(kSum);
  EXPECT_FALSE(waits.over || fails.over);
  deliver(1, 0, large_);
  EXPECT_TRUE(eventually([&] { return waits.over && fails.over; }));
  EXPECT_TRUE(waits.status.ok() && waits.there);
  EXPECT_TRUE(fails.status.ok() && fails.there);
  EXPECT_TRUE(channel_->ping(Clock::now() + 20s).ok());
  call(kEcho);
}

TEST_P(LandingsTest, AReplyBeforeTheNumberDoesNotWait) {
  start();
  deliver(1, 0, large_);
  call(kEcho);
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(is_there(0, large_)) << "its place among the notices is not known";
  announce(1);
  call(kEcho);
  EXPECT_TRUE(is_there(0, large_));
}

TEST_P(LandingsTest, MemoryOfTheChannelServesAsWell) {
  area_.places = false;
  start();
  announce(1);
  deliver(1, 0, large_);
  call(kSmall, 100, small_);
  call(kEcho);
  EXPECT_TRUE(is_there(100, small_));
  EXPECT_TRUE(is_there(0, {large_.begin(), large_.begin() + 100}));
}

TEST_P(LandingsTest, AReplysBulkComesBehindTheDelivery) {
  start();
  announce(1);
  Outcome outcome;
  on_thread([&] {
    Reply reply;
    const Bytes piece(small_);
    outcome.status = call_with(*channel_, kEcho, 0, reply, std::span(&piece, 1),
                               std::span(area_.bytes).subspan(100, small_.size()));
    outcome.over = true;
  });
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(outcome.over);
  deliver(1, 0, large_);
  ASSERT_TRUE(eventually([&] { return outcome.over.load(); }));
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_TRUE(is_there(100, small_)) << "it was said later, and is what counts";
  EXPECT_TRUE(is_there(0, {large_.begin(), large_.begin() + 100}));
}

// In frames and beside them, to the same bytes.
TEST_P(LandingsTest, DeliveriesKeepTheirOrder) {
  start();
  announce(1);
  call(kSmall, 100, small_);
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(is_there(100, small_));
  deliver(1, 0, large_);
  call(kEcho);
  EXPECT_TRUE(is_there(100, small_)) << "it comes behind the large one";

  deliver(2, 0, large_);
  std::this_thread::sleep_for(kWhile);
  call(kSmall, 200, small_);
  announce(2);
  call(kEcho);
  EXPECT_TRUE(is_there(0, large_)) << "it comes behind the small one";
}

TEST_P(LandingsTest, NoticesAndErrorsAreHandledBehindTheirDelivery) {
  start();
  announce(1);
  call(kSay);
  ASSERT_TRUE(send_with(*channel_, kFail, kLaunchFailed).ok());
  call(kSum);
  announce(2);
  call(kPrint, 0, small_);
  std::this_thread::sleep_for(kWhile);
  EXPECT_EQ(area_.count, 0u);
  // A thread that waits for a notice is woken although no frame comes.
  std::atomic<bool> seen{false};
  on_thread([&] { seen = channel_->read_until([&] { return area_.count >= 3; }, kNoDeadline); });
  std::this_thread::sleep_for(kWhile);
  deliver(1, 0, large_);
  EXPECT_TRUE(eventually([&] { return seen.load(); }));
  const std::vector<uint16_t> first = {wire::kDelivery, wire::kQueueReached, kLaunchFailed};
  EXPECT_EQ(area_.order(), first);
  deliver(2, 0, small_);
  call(kEcho);
  std::vector<uint16_t> all = first;
  all.insert(all.end(), {wire::kDelivery, wire::kOutput});
  EXPECT_EQ(area_.order(), all);
}

TEST_P(LandingsTest, AwaitedLaterAndWithSyncAll) {
  start({.sync_all = true});
  announce(1);
  Outcome later, sent;
  on_thread([&] {
    ASSERT_TRUE(send_with(*channel_, kCount, 1).ok());
    sent.over = true;
  });
  Reply reply;
  Channel::Later call;
  alignas(8) std::byte memory[64];
  wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
  builder.initRoot<Number>().setValue(5);
  ASSERT_TRUE(eventually([&] {
    return channel_->call_later(kEcho, 7, Bytes(memory).first(builder.used_bytes()), reply, {},
                                call);
  }));
  on_thread([&] {
    later.status = call.wait();
    later.over = true;
  });
  std::this_thread::sleep_for(kWhile);
  EXPECT_FALSE(later.over || sent.over);
  deliver(1, 0, large_);
  EXPECT_TRUE(eventually([&] { return later.over && sent.over; }));
  EXPECT_TRUE(later.status.ok());
  EXPECT_EQ(value_of(reply), 5u);
}

TEST_P(LandingsTest, EveryEndOfTheSessionEndsTheWait) {
  for (const char* const end : {"calls", "bulk", "close"}) {
    SCOPED_TRACE(end);
    const int before = area_.losses;
    start();
    announce(1);
    call(kPrint, 0, small_);
    call(kSay);
    const size_t handled = area_.count;
    Outcome outcome;
    ask(outcome);
    std::this_thread::sleep_for(kWhile);
    EXPECT_FALSE(outcome.over);
    const bool closed = *end == 'c' && end[1] == 'l';
    if (*end == 'b') {
      far_->close();
    } else if (closed) {
      channel_->close(Clock::now() + 200ms);
    } else {
      server_->stop();
    }
    EXPECT_TRUE(eventually([&] { return outcome.over.load(); }));
    EXPECT_EQ(outcome.status.code(), StatusCode::kLost);
    EXPECT_EQ(outcome.losses, closed ? before : before + 1) << "the sink was told first";
    EXPECT_EQ(area_.count, handled + 1) << "what was printed is shown, the rest is not handled";
    threads_.back().join();
    threads_.pop_back();
    channel_.reset();
  }
}

TEST_P(LandingsTest, TheSinkIsToldOfALossWhenNothingIsReceivedAnyMore) {
  start();
  area_.holds = true;
  announce(1);
  deliver(1, 0, large_);
  ASSERT_TRUE(eventually([&] { return area_.inside.load(); }));
  server_->stop();
  ASSERT_TRUE(eventually([&] { return channel_->lost(); }));
  std::this_thread::sleep_for(kWhile);
  EXPECT_EQ(area_.losses, 0);
  area_.holds = false;
  EXPECT_TRUE(eventually([&] { return area_.losses == 1; }));
}

TEST_P(LandingsTest, LivenessIsWatchedDuringTheWait) {
  start({.keepalive = 100ms});
  announce(1);
  Outcome outcome;
  ask(outcome);
  std::this_thread::sleep_for(1s);  // longer than three periods
  EXPECT_FALSE(channel_->lost()) << "the server answers pings";
  server_->pause(true);
  EXPECT_TRUE(eventually([&] { return outcome.over.load(); }));
  EXPECT_NE(area_.lost_why().find("not answered"), std::string::npos) << area_.lost_why();
  server_->pause(false);
}

TEST_P(LandingsTest, AForkedChildDoesNotWait) {
  start();
  announce(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    channel_->abandon_after_fork();
    Reply reply;
    const bool refused = call_with(*channel_, kEcho, 1, reply).code() == StatusCode::kLost;
    channel_.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  deliver(1, 0, large_);
  call(kEcho);
  EXPECT_TRUE(is_there(0, large_));
}

TEST_P(LandingsTest, WhatIsNotExpectedEndsTheSession) {
  wire::FrameHeader call = delivery(1, small_.size()), early = delivery(2, small_.size()),
                    empty = delivery(1, 0), reply = delivery(1, small_.size());
  call.opcode = kEcho;
  reply.flags = wire::kReply;
  for (const wire::FrameHeader& header : {call, early, empty, reply}) {
    SCOPED_TRACE(fmt::format("{} {} {}", header.opcode, header.sequence, header.bulk_bytes));
    const int before = area_.losses;
    start();
    announce(1);
    send_beside(header, 0, header.bulk_bytes == 0 ? Bytes() : Bytes(small_));
    ASSERT_TRUE(eventually([&] { return area_.losses == before + 1; }));
    EXPECT_NE(area_.lost_why().find("is not delivery 1"), std::string::npos) << area_.lost_why();
    EXPECT_EQ(area_.count, 0u);
    channel_.reset();
  }
  for (const uint64_t number : {0, 1, 3}) {
    const int before = area_.losses;
    start();
    announce(1);
    Reply answer;
    EXPECT_FALSE(call_with(*channel_, kAnnounce, number, answer).ok());
    EXPECT_EQ(area_.losses, before + 1);
    EXPECT_NE(area_.lost_why().find("instead of 2"), std::string::npos) << area_.lost_why();
    channel_.reset();
  }
}

TEST_P(LandingsTest, ARefusalOfTheSinkEndsTheSession) {
  for (const uint16_t refused : {wire::kDelivery, wire::kQueueReached}) {
    const int before = area_.losses;
    area_.refuses = refused;
    start();
    announce(1);
    call(kSay);
    deliver(1, 0, small_);
    ASSERT_TRUE(eventually([&] { return area_.losses == before + 1; }));
    EXPECT_NE(area_.lost_why().find("it was refused"), std::string::npos) << area_.lost_why();
    channel_.reset();
  }
}

// Each call makes the server say a number and send its bytes later; the reply says the number.
class ManyLandings : public LandingsTest {
 protected:
  static constexpr size_t kBytes = 64 << 10;
  ManyLandings() {
    on_thread([this] { send_all(); });
  }
  ~ManyLandings() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    end();
  }
  Status answer(rpc::Responder& responder, const ReceivedFrame& request) override {
    if (request.header.opcode != kEcho) return LandingsTest::answer(responder, request);
    {
      const std::lock_guard lock(mutex_);
      ++number_;
      changed_.notify_all();
    }
    if (number_ % 3 == 0) {
      rpc::Responder::Frame small(responder, wire::kDelivery, 64);
      small.init<Number>().setValue(0);
      const std::vector<std::byte> bytes = bytes_of(number_ - 1);
      const Bytes bulk(bytes);
      FARGPU_RETURN_IF_ERROR(small.send(0, std::span(&bulk, 1)));
    }
    FARGPU_RETURN_IF_ERROR(responder.notice(wire::kDeliveryBeside, number_));
    rpc::Responder::Frame frame(responder, request.header, 64);
    frame.init<Number>().setValue(number_);
    return frame.send(0);
  }
  static std::vector<std::byte> bytes_of(uint32_t number) {
    std::vector<std::byte> bytes(kBytes);
    for (size_t i = 0; i < kBytes; i += sizeof number)
      std::memcpy(bytes.data() + i, &number, sizeof number);
    return bytes;
  }
  void send_all() {
    for (uint32_t number = 1;; ++number) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return number_ >= number || closing_; });
        if (closing_) return;
      }
      if (number % 5 == 0) std::this_thread::sleep_for(1ms);
      deliver(number, 0, bytes_of(number));
    }
  }
  uint32_t number_ = 0;
  bool closing_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

TEST_P(ManyLandings, NobodyKnowsMoreThanTheBytesThatHeHas) {
  start();
  constexpr int kThreads = 6, kCalls = 200;
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        Reply reply;
        if (!call_with(*channel_, i % 4 == 0 ? kSum : kEcho, 0, reply).ok()) ++wrong;
        if (i % 4 == 0) continue;
        // Later deliveries may have come, earlier ones not.
        if (area_.word() < value_of(reply)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(channel_->lost()) << channel_->why_lost().message();
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(is_there(0, bytes_of(number_)));
}

INSTANTIATE_TEST_SUITE_P(Connections, LandingsTest, ::testing::Values(1, 3));
INSTANTIATE_TEST_SUITE_P(Connections, ManyLandings, ::testing::Values(1, 3));

}  // namespace
}  // namespace fargpu::test
