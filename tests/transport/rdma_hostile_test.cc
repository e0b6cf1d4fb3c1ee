// An rdma peer that breaks every rule ends its own session, and no other. Needs an RDMA device
// (scripts/test-rdma runs it in a VM).
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/transport/rdma_pairs.h"
#include "tests/transport/rdma_raw_peer.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;

// As in rdma_link.cc: kind in the highest byte, a number below.
constexpr uint32_t kCredit = 1u << 24, kBye = 2u << 24;

transport::Deadline soon() { return Clock::now() + 20s; }

// Takes anything that is a frame.
class AnyFrame final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    bulk_.resize(header.bulk_bytes);
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader&, Bytes, std::span<std::byte>) override {
    ++frames;
    return Status();
  }
  unsigned frames = 0;

 private:
  std::vector<std::byte> bulk_;
};

class RdmaHostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = rdma_address();
    if (!address_) GTEST_SKIP() << "no RDMA device here: scripts/test-rdma runs this in a VM";
  }

  // A session with such a peer. The status is the server's.
  Status meet(const std::function<void(transport::RdmaGreeting&)>& change = {}) {
    server_.reset();
    peer_.reset();
    auto acceptor = transport::RdmaAcceptor::listen(*address_, options_);
    if (!acceptor.ok()) return acceptor.status();
    std::thread peer(
        [&, offer = (*acceptor)->offer()] { peer_.emplace(*address_, offer, change); });
    Fd none;
    auto made = (*acceptor)->accept(none, soon());
    peer.join();
    if (made.ok()) server_ = std::move(*made);
    return made.status();
  }
  // What the server says when it receives until the session ends, or until the peer has been quiet
  // for a while (kTimeout).
  Status outcome() {
    const auto quiet = Clock::now() + 2s;
    while (Clock::now() < quiet) {
      const auto received = server_->receive(handler_, quiet);
      if (!received.ok()) return received.status();
    }
    return Status(StatusCode::kTimeout, "the session goes on");
  }
  void expect_end(StatusCode code, const char* text) {
    const Status status = outcome();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
    EXPECT_EQ(server_->reserve(64, soon()).status().code(), StatusCode::kLost);
  }

  std::optional<transport::SocketAddress> address_;
  transport::RdmaOptions options_;
  std::unique_ptr<transport::Transport> server_;
  std::optional<RawRdmaPeer> peer_;
  AnyFrame handler_;
};

TEST_F(RdmaHostileTest, OneThatKeepsTheRulesIsServed) {
  ASSERT_TRUE(meet().ok());
  const size_t bytes = peer_->put_frame(header_of(8, 0));
  peer_->write(bytes, 0, static_cast<uint32_t>(bytes));
  while (handler_.frames == 0) ASSERT_TRUE(server_->receive(handler_, soon()).ok());
  ASSERT_TRUE(send_frame(*server_, 1, 8, 0).ok());
  EXPECT_TRUE(server_->flush(soon()).ok());
  peer_->send(kCredit | 1);
  EXPECT_EQ(outcome().code(), StatusCode::kTimeout);
  peer_->send(kBye);
  expect_end(StatusCode::kLost, "closed the connection");
}

TEST_F(RdmaHostileTest, MessagesThatAreLongerThanTheRing) {
  for (const uint32_t bytes : {options_.ring_bytes + 1, 0x80000000u, 0xffffffffu}) {
    ASSERT_TRUE(meet().ok());
    peer_->write(8, 0, bytes);
    expect_end(StatusCode::kLost, "without a credit");
  }
}

TEST_F(RdmaHostileTest, AMessageOfNothing) {
  ASSERT_TRUE(meet().ok());
  peer_->write(0, 0, 0);
  expect_end(StatusCode::kLost, "without a credit");
}

// Each small enough, together more than the ring: the second comes before the first has been taken.
TEST_F(RdmaHostileTest, MoreBytesThanTheRingHas) {
  ASSERT_TRUE(meet().ok());
  peer_->put_frame(header_of(0, 64 << 20));
  peer_->write(64, 0, options_.ring_bytes);
  peer_->write(64, 0, options_.ring_bytes);
  std::this_thread::sleep_for(100ms);  // both are there when the server looks
  expect_end(StatusCode::kLost, "without a credit");
}

TEST_F(RdmaHostileTest, MoreMessagesThanWereAllowed) {
  ASSERT_TRUE(meet().ok());
  peer_->put_frame(header_of(0, 1 << 20));
  for (int i = 0; i < 270; ++i) peer_->write(32, 0, 32);
  std::this_thread::sleep_for(200ms);
  expect_end(StatusCode::kLost, "without a credit");
}

TEST_F(RdmaHostileTest, CreditsForWhatWasNotSent) {
  for (const uint32_t number : {1u, 255u, 0xffffffu}) {
    ASSERT_TRUE(meet().ok());
    peer_->send(kCredit | number);
    expect_end(StatusCode::kLost, "that were not sent");
  }
}

TEST_F(RdmaHostileTest, TheSameCreditTwice) {
  ASSERT_TRUE(meet().ok());
  ASSERT_TRUE(send_frame(*server_, 1, 8, 0).ok());
  ASSERT_TRUE(server_->flush(soon()).ok());
  peer_->send(kCredit | 1);
  peer_->send(kCredit | 1);
  expect_end(StatusCode::kLost, "that were not sent");
}

TEST_F(RdmaHostileTest, ControlMessagesThatMeanNothing) {
  for (const std::optional<uint32_t> immediate :
       {std::optional<uint32_t>(0), std::optional<uint32_t>(3u << 24),
        std::optional<uint32_t>(0xffffffff), std::optional<uint32_t>()}) {
    ASSERT_TRUE(meet().ok());
    peer_->send(immediate);
    expect_end(StatusCode::kLost, "unknown control message");
  }
}

// There is no memory behind the receives of control messages.
TEST_F(RdmaHostileTest, AControlMessageWithContents) {
  ASSERT_TRUE(meet().ok());
  peer_->send(kCredit, 100);
  expect_end(StatusCode::kLost, "connection lost");
}

// The immediate counts bytes that were not written; what the ring held is no frame.
TEST_F(RdmaHostileTest, BytesThatWereNotWritten) {
  ASSERT_TRUE(meet().ok());
  peer_->write(0, 0, 4096);
  expect_end(StatusCode::kProtocol, "");
}

TEST_F(RdmaHostileTest, NoFramesAtAll) {
  ASSERT_TRUE(meet().ok());
  const auto rubbish = pattern(4096, 7);
  std::copy(rubbish.begin(), rubbish.end(), peer_->memory().begin());
  peer_->write(4096, 0, 4096);
  expect_end(StatusCode::kProtocol, "");
}

TEST_F(RdmaHostileTest, AFrameBeyondTheLimits) {
  ASSERT_TRUE(meet().ok());
  peer_->put_frame(header_of(0, uint64_t{1} << 60));
  peer_->write(64, 0, 64);
  expect_end(StatusCode::kProtocol, "");
}

TEST_F(RdmaHostileTest, AWriteBesideTheRing) {
  for (const uint64_t offset :
       {uint64_t{options_.ring_bytes} - 4, uint64_t{1} << 40, ~uint64_t{0} - 4096}) {
    ASSERT_TRUE(meet().ok());
    peer_->write(64, offset, 64);
    expect_end(StatusCode::kLost, "connection lost");
  }
}

TEST_F(RdmaHostileTest, ARingThatCannotBe) {
  EXPECT_EQ(meet([](auto& ours) { ours.ring_bytes = 0; }).code(), StatusCode::kProtocol);
  EXPECT_EQ(meet([](auto& ours) { ours.ring_bytes = 100'000; }).code(), StatusCode::kProtocol);
  EXPECT_EQ(meet([](auto& ours) { ours.ring_bytes = 0xfffff000; }).code(), StatusCode::kProtocol);
  EXPECT_EQ(meet([](auto& ours) { ours.messages = 1; }).code(), StatusCode::kProtocol);
}

// What the server writes there is refused by the peer's own adapter.
TEST_F(RdmaHostileTest, ARingThatIsNotThePeers) {
  ASSERT_TRUE(meet([](auto& ours) { ours.ring_key ^= 0x1234; }).ok());
  ASSERT_TRUE(send_frame(*server_, 1, 8, 0).ok());
  (void)server_->flush(soon());
  expect_end(StatusCode::kLost, "connection lost");
}

// Anything, in any order, next to a session that must not notice.
TEST_F(RdmaHostileTest, RubbishEndsOnlyItsOwnSession) {
  TransportPair good = make_rdma_pair({}, address_);
  std::mt19937 random(17);
  unsigned ended = 0;
  constexpr unsigned kRounds = 12;
  for (unsigned round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(meet().ok());
    for (int step = 0; step < 100; ++step) {
      const auto word = static_cast<uint32_t>(random());
      peer_->put_frame(header_of(8 * (word % 8), random() % 4 == 0 ? random() % 5000 : 0));
      switch (random() % 8) {
        case 0:
          peer_->write(word % 200, word % 4096, word);
          break;
        case 1:
          peer_->send(random() % 2 == 0 ? word : kCredit | (word & 3));
          break;
        case 2:
          peer_->write(word % 64, word % 512, std::nullopt);
          break;
        default:
          peer_->write(64, 64 * (word % 64), 1 + word % 200);
      }
      if (random() % 4 == 0) (void)server_->receive(handler_, Clock::now() - 1s);
      if (random() % 4 == 0) (void)send_frame(*server_, 1, 8, 0, 1, Clock::now() - 1s);
      (void)server_->flush(Clock::now() - 1s);
    }
    const Status status = outcome();
    ended += status.code() == StatusCode::kProtocol || status.code() == StatusCode::kLost ? 1 : 0;
    ASSERT_TRUE(send_frame(*good.client, round, 80, 10'000).ok());
    ASSERT_TRUE(good.client->flush(soon()).ok());
    CheckingHandler checking;
    while (checking.headers.empty()) ASSERT_TRUE(good.server->receive(checking, soon()).ok());
    EXPECT_EQ(checking.wrong, 0);
  }
  EXPECT_EQ(ended, kRounds);
}

}  // namespace
}  // namespace fargpu::test
