// The rdma transport by itself: how it is made and refused, remote memory, loss, what it costs when
// nothing happens. Needs an RDMA device (scripts/test-rdma runs it in a VM).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "common/transport/remote_memory.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/frames.h"
#include "tests/transport/rdma_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;
using transport::RemoteAccess;
using transport::RemoteKey;

transport::Deadline soon() { return Clock::now() + 20s; }

Status receive_frames(transport::Transport& end, CheckingHandler& handler, size_t count) {
  const auto deadline = Clock::now() + 60s;
  while (handler.headers.size() < count) {
    auto received = end.receive(handler, deadline);
    if (!received.ok()) return received.status();
    if (Clock::now() >= deadline) return Status(StatusCode::kTimeout, "frames missing");
  }
  return Status();
}

StatusCode end_of(transport::Transport& end) {
  CheckingHandler handler;
  return end.receive(handler, soon()).status().code();
}

class RdmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = rdma_address();
    if (!address_) GTEST_SKIP() << "no RDMA device here: scripts/test-rdma runs this in a VM";
  }
  TransportPair make(const transport::RdmaOptions& options = {}) {
    return make_rdma_pair(options, address_);
  }

  std::optional<transport::SocketAddress> address_;
};

// --- remote memory ---

class RdmaMemoryTest : public RdmaTest {
 protected:
  void SetUp() override {
    RdmaTest::SetUp();
    if (!address_) return;
    pair_ = make();
    theirs_ = pattern(3 << 20, 1);
    ours_.resize(theirs_.size());
    auto there = server().register_memory(theirs_, RemoteAccess::kReadWrite);
    auto here = client().register_memory(ours_, RemoteAccess::kNone);
    ASSERT_TRUE(there.ok()) << there.status().message();
    ASSERT_TRUE(here.ok()) << here.status().message();
    there_ = std::move(*there);
    here_ = std::move(*here);
  }
  transport::RemoteMemory& client() { return *pair_.client->remote_memory(); }
  transport::RemoteMemory& server() { return *pair_.server->remote_memory(); }
  Status finish(Result<uint64_t> ticket) {
    return ticket.ok() ? client().wait(*ticket, soon()) : ticket.status();
  }

  TransportPair pair_;
  std::vector<std::byte> theirs_, ours_;
  std::unique_ptr<transport::RegisteredMemory> there_, here_;
};

TEST_F(RdmaMemoryTest, ReadsAndWritesAnyPartOfIt) {
  const RemoteKey key = there_->key();
  ASSERT_TRUE(finish(client().read(key, 0, *here_, ours_)).ok());
  EXPECT_TRUE(same(ours_, theirs_));
  const auto fresh = pattern(100'001, 2);
  std::copy(fresh.begin(), fresh.end(), ours_.begin() + 77);
  const auto before = theirs_;
  ASSERT_TRUE(
      finish(client().write(*here_, std::span(ours_).subspan(77, fresh.size()), key, 12'345)).ok());
  EXPECT_TRUE(same(Bytes(theirs_).subspan(12'345, fresh.size()), fresh));
  EXPECT_TRUE(same(Bytes(theirs_).first(12'345), Bytes(before).first(12'345)));
  EXPECT_TRUE(same(Bytes(theirs_).subspan(12'345 + fresh.size()),
                   Bytes(before).subspan(12'345 + fresh.size())));
}

TEST_F(RdmaMemoryTest, ManyMayBeUnderWay) {
  uint64_t last = 0;
  for (size_t offset = 0; offset < ours_.size();
       offset += 2048) {  // more than the send queue holds
    auto ticket =
        client().read(there_->key(), offset, *here_, std::span(ours_).subspan(offset, 2048));
    ASSERT_TRUE(ticket.ok()) << ticket.status().message();
    last = *ticket;
  }
  ASSERT_TRUE(client().wait(last, soon()).ok());
  EXPECT_TRUE(same(ours_, theirs_));
}

TEST_F(RdmaMemoryTest, WritesAreSeenBeforeLaterFrames) {
  CheckingHandler handler;
  for (uint32_t round = 1; round <= 200; ++round) {
    std::fill_n(ours_.begin(), 70'000, static_cast<std::byte>(round));
    auto ticket = client().write(*here_, std::span(ours_).first(70'000), there_->key(), 0);
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(send_frame(*pair_.client, round, 8, 0).ok());
    ASSERT_TRUE(pair_.client->flush(kNoDeadline).ok());
    ASSERT_TRUE(receive_frames(*pair_.server, handler, round).ok());
    ASSERT_EQ(theirs_[69'999], static_cast<std::byte>(round));
    ASSERT_TRUE(client().wait(*ticket, soon()).ok());
  }
}

// As a function in a stream of the GPU does it, while the executor sleeps in receive().
TEST_F(RdmaMemoryTest, MovesOnOtherThreadsBesideTheOneThatReceives) {
  CheckingHandler handler;
  std::thread receiver([&] { EXPECT_TRUE(receive_frames(*pair_.client, handler, 20).ok()); });
  std::vector<std::byte> more(ours_.size());
  auto more_registered = client().register_memory(more, RemoteAccess::kNone);
  ASSERT_TRUE(more_registered.ok());
  std::thread reader([&] {
    for (int round = 0; round < 5; ++round) {
      std::fill(more.begin(), more.end(), std::byte{0});
      ASSERT_TRUE(client().read_now(there_->key(), 0, **more_registered, more, soon()).ok());
      ASSERT_TRUE(same(more, theirs_));
    }
  });
  std::thread server_side([&] {
    for (uint32_t i = 1; i <= 20; ++i) {
      ASSERT_TRUE(send_frame(*pair_.server, i, 8, 5000).ok());
      ASSERT_TRUE(pair_.server->flush(kNoDeadline).ok());
      std::this_thread::sleep_for(2ms);
    }
  });
  reader.join();
  server_side.join();
  receiver.join();
  EXPECT_EQ(handler.wrong, 0);
  const auto fresh = pattern(ours_.size(), 8);
  std::copy(fresh.begin(), fresh.end(), ours_.begin());
  ASSERT_TRUE(client().write_now(*here_, ours_, there_->key(), 0, soon()).ok());
  EXPECT_TRUE(same(theirs_, fresh));
  EXPECT_EQ(client().read_now(there_->key(), 1, *here_, ours_, soon()).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(RdmaMemoryTest, AMoveThatFailsEndsTheSession) {
  RemoteKey wrong = there_->key();
  wrong.key ^= 0x5a5a5a00;
  EXPECT_EQ(client().write_now(*here_, std::span(ours_).first(8), wrong, 0, soon()).code(),
            StatusCode::kLost);
  EXPECT_EQ(end_of(*pair_.server), StatusCode::kLost);
}

TEST_F(RdmaMemoryTest, SaysWhereItGoes) {
  const std::string route = client().route();
  EXPECT_NE(route.find("::ffff:" + address_->host()), std::string::npos) << route;
  EXPECT_NE(route.find("path MTU"), std::string::npos) << route;
  EXPECT_NE(route.find("RoCE v2"), std::string::npos) << route;
}

TEST_F(RdmaMemoryTest, RangesAreCheckedBeforeTheyAreUsed) {
  const RemoteKey key = there_->key();
  const auto some = std::span(ours_).first(100);
  EXPECT_EQ(client().read(key, key.bytes - 99, *here_, some).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(client().write(*here_, some, key, ~uint64_t{0}).status().code(),
            StatusCode::kInvalidArgument);
  std::vector<std::byte> elsewhere(100);
  EXPECT_EQ(client().read(key, 0, *here_, elsewhere).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(finish(client().read(key, key.bytes - 100, *here_, some)).ok());  // and lives on
}

TEST_F(RdmaMemoryTest, WhatIsForOneselfHasNoKey) {
  EXPECT_EQ(here_->key().key, 0u);
  EXPECT_EQ(here_->key().bytes, 0u);
}

// What a client may try with a key that it forges or is not allowed: its own session ends, at both
// ends.
TEST_F(RdmaMemoryTest, AWrongKeyEndsTheSession) {
  RemoteKey wrong = there_->key();
  wrong.key ^= 0x5a5a5a00;
  EXPECT_EQ(finish(client().read(wrong, 0, *here_, std::span(ours_).first(8))).code(),
            StatusCode::kLost);
  EXPECT_EQ(end_of(*pair_.client), StatusCode::kLost);
  EXPECT_EQ(end_of(*pair_.server), StatusCode::kLost);
}

TEST_F(RdmaMemoryTest, ARangeBeyondTheRegistrationEndsTheSession) {
  RemoteKey forged = there_->key();
  forged.bytes += 4096;
  EXPECT_EQ(
      finish(client().read(forged, forged.bytes - 4096, *here_, std::span(ours_).first(8))).code(),
      StatusCode::kLost);
  EXPECT_EQ(end_of(*pair_.server), StatusCode::kLost);
}

TEST_F(RdmaMemoryTest, ReadableIsNotWritable) {
  std::vector<std::byte> readable(4096);
  auto registered = server().register_memory(readable, RemoteAccess::kRead);
  ASSERT_TRUE(registered.ok());
  ASSERT_TRUE(
      finish(client().read((*registered)->key(), 0, *here_, std::span(ours_).first(4096))).ok());
  std::fill_n(ours_.begin(), 4096, std::byte{9});
  EXPECT_EQ(
      finish(client().write(*here_, std::span(ours_).first(4096), (*registered)->key(), 0)).code(),
      StatusCode::kLost);
  EXPECT_EQ(readable[0], std::byte{0});
}

TEST_F(RdmaMemoryTest, AKeyDiesWithItsRegistration) {
  const RemoteKey key = there_->key();
  there_.reset();
  EXPECT_EQ(finish(client().read(key, 0, *here_, std::span(ours_).first(8))).code(),
            StatusCode::kLost);
}

TEST_F(RdmaMemoryTest, AKeyOfAnotherSessionIsOfNoUse) {
  TransportPair other = make();
  std::vector<std::byte> memory(4096);
  auto mine = other.client->remote_memory()->register_memory(memory, RemoteAccess::kNone);
  ASSERT_TRUE(mine.ok());
  auto ticket = other.client->remote_memory()->read(there_->key(), 0, **mine, memory);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(other.client->remote_memory()->wait(*ticket, soon()).code(), StatusCode::kLost);
  ASSERT_TRUE(finish(client().read(there_->key(), 0, *here_, std::span(ours_).first(8))).ok());
}

TEST_F(RdmaMemoryTest, ARegistrationMayOutliveItsTransport) {
  pair_ = {};
  EXPECT_EQ(here_->memory().size(), ours_.size());
  here_.reset();
  there_.reset();
}

TEST_F(RdmaMemoryTest, MemoryThatMayOnlyBeReadCanBeSent) {
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto registered =
      client().register_memory({static_cast<std::byte*>(page), 4096}, RemoteAccess::kRead);
  EXPECT_TRUE(registered.ok()) << registered.status().message();
  registered = Status();
  ::munmap(page, 4096);
}

TEST_F(RdmaMemoryTest, ADmabufThatIsNoneIsRefused) {
  const int memory = ::memfd_create("not a dma-buf", 0);
  ASSERT_EQ(::ftruncate(memory, 4096), 0);
  auto registered =
      client().register_dmabuf(memory, 0, std::span(ours_).first(4096), RemoteAccess::kRead);
  EXPECT_EQ(registered.status().code(), StatusCode::kUnsupported) << registered.status().message();
  ::close(memory);
}

TEST_F(RdmaMemoryTest, BulkLeavesFromRegisteredMemory) {
  // Parts of registered memory, large enough to be sent in place, between parts that are not.
  const auto fresh = pattern(ours_.size(), 4);
  std::copy(fresh.begin(), fresh.end(), ours_.begin());
  wire::FrameHeader header;
  header.opcode = 100;
  const std::vector<std::byte> other = pattern(50'000, 9);
  const Bytes pieces[] = {Bytes(ours_).subspan(3, 1'000'001), Bytes(other),
                          Bytes(ours_).subspan(2'000'000, 40'000)};
  std::vector<std::byte> expected;
  for (const Bytes& piece : pieces) expected.insert(expected.end(), piece.begin(), piece.end());
  header.bulk_bytes = expected.size();
  std::thread sender([&] {
    for (int i = 0; i < 5; ++i) {
      auto slot = pair_.client->reserve(sizeof header, kNoDeadline);
      ASSERT_TRUE(slot.ok());
      std::memcpy(slot->data(), &header, sizeof header);
      ASSERT_TRUE(pair_.client->commit(sizeof header, pieces, kNoDeadline).ok());
    }
    ASSERT_TRUE(pair_.client->flush(kNoDeadline).ok());
  });
  struct Handler final : transport::FrameHandler {
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& h, Bytes) override {
      bulk.assign(h.bulk_bytes, std::byte{0});
      return std::span(bulk);
    }
    Status on_frame(const wire::FrameHeader&, Bytes, std::span<std::byte>) override {
      good += same(bulk, *wanted) ? 1 : 0;
      ++all;
      return Status();
    }
    std::vector<std::byte> bulk;
    const std::vector<std::byte>* wanted = nullptr;
    int good = 0, all = 0;
  } handler;
  handler.wanted = &expected;
  while (handler.all < 5) ASSERT_TRUE(pair_.server->receive(handler, soon()).ok());
  sender.join();
  EXPECT_EQ(handler.good, 5);
}

// --- how it is made ---

TEST_F(RdmaTest, AWrongCookieIsRejectedAndTheRightOneStillComesIn) {
  auto acceptor = transport::RdmaAcceptor::listen(*address_, {});
  ASSERT_TRUE(acceptor.ok());
  std::unique_ptr<transport::Transport> client;
  Status stranger_status;
  std::thread clients([&] {
    Fd none;
    transport::RdmaOffer wrong = (*acceptor)->offer();
    wrong.cookie[15] ^= std::byte{1};
    stranger_status = transport::rdma_connect(*address_, wrong, {}, none, soon()).status();
    auto made = transport::rdma_connect(*address_, (*acceptor)->offer(), {}, none, soon());
    if (made.ok()) client = std::move(*made);
  });
  Fd none;
  auto server = (*acceptor)->accept(none, soon());
  clients.join();
  EXPECT_EQ(stranger_status.code(), StatusCode::kRefused);
  EXPECT_NE(stranger_status.message().find("cookie"), std::string::npos)
      << stranger_status.message();
  ASSERT_TRUE(server.ok()) << server.status().message();
  ASSERT_NE(client, nullptr);
  EXPECT_NE(client->describe().find(address_->host()), std::string::npos) << client->describe();
}

TEST_F(RdmaTest, FailuresHaveTheirReasonAndLeaveTheSocketAlone) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  Fd bootstrap(sockets[0]), other(sockets[1]);
  transport::RdmaOffer offer;
  offer.port = 1;
  auto refused = transport::rdma_connect(*address_, offer, {}, bootstrap, soon());
  EXPECT_EQ(refused.status().code(), StatusCode::kRefused) << refused.status().message();
  auto nobody = transport::SocketAddress::parse("192.0.2.1", 0);
  auto unreachable = transport::rdma_connect(*nobody, offer, {}, bootstrap, Clock::now() + 2s);
  EXPECT_FALSE(unreachable.ok());
  EXPECT_NE(unreachable.status().message().find("192.0.2.1"), std::string::npos)
      << unreachable.status().message();
  auto acceptor = transport::RdmaAcceptor::listen(*address_, {});
  ASSERT_TRUE(acceptor.ok());
  EXPECT_EQ((*acceptor)->accept(bootstrap, Clock::now() + 30ms).status().code(),
            StatusCode::kTimeout);
  EXPECT_EQ(transport::RdmaAcceptor::listen(*nobody, {}).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(bootstrap.valid());
}

TEST_F(RdmaTest, GoesOverIpv6) {
  const auto address = rdma_address(AF_INET6);
  ASSERT_TRUE(address.has_value());
  TransportPair pair = make_rdma_pair({}, address);
  ASSERT_TRUE(send_frame(*pair.client, 1, 80, 100'000).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  CheckingHandler handler;
  EXPECT_TRUE(receive_frames(*pair.server, handler, 1).ok());
  EXPECT_EQ(handler.wrong, 0);
}

TEST_F(RdmaTest, ProbesSayWhatIsThere) {
  auto local = transport::probe_rdma_local(*address_);
  auto route = transport::probe_rdma_route(*address_, soon());
  auto all = transport::list_rdma_ports();
  ASSERT_TRUE(local.ok()) << local.status().message();
  ASSERT_TRUE(route.ok()) << route.status().message();
  ASSERT_TRUE(all.ok() && !all->empty());
  EXPECT_TRUE(local->active);
  EXPECT_GE(local->mtu, 256u);
  ASSERT_EQ(local->gids.size(), 1u);
  EXPECT_EQ(local->gids[0].value, "::ffff:" + address_->host());
  EXPECT_EQ(route->device, local->device);
  EXPECT_EQ((*all)[0].device, local->device);
  EXPECT_NE(local->text().find(local->device), std::string::npos);
}

// In a process that may not lock memory at will, which binds it to the limit.
TEST_F(RdmaTest, TheLimitOfLockedMemoryIsNamed) {
  const char* program = std::getenv("FARGPU_TEST_RDMA_PEER");
  if (program == nullptr)
    GTEST_SKIP() << "FARGPU_TEST_RDMA_PEER does not name the program rdma_peer";
  EXPECT_EQ(std::system((std::string(program) + " limited " + address_->host() + " 0").c_str()), 0);
}

// --- flow, rest and loss ---

TEST_F(RdmaTest, ASlowReceiverIsNeverOverrun) {
  transport::RdmaOptions options;
  options.ring_bytes = options.staging_bytes = 64 << 10;
  TransportPair pair = make(options);
  constexpr uint32_t kFrames = 5000;
  std::thread sender([&] {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      ASSERT_TRUE(send_frame(*pair.client, i, 8 * (i % 50), i % 500 == 0 ? 150'000 : i % 3).ok());
      ASSERT_TRUE(
          pair.client->flush(kNoDeadline).ok());  // a message each: more than may be under way
    }
  });
  CheckingHandler handler;
  while (handler.headers.size() < kFrames) {
    if (handler.headers.size() % 7 == 0) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(pair.server->receive(handler, soon()).ok());
  }
  sender.join();
  EXPECT_EQ(handler.wrong, 0);
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(handler.headers[i].sequence, i + 1);
}

TEST_F(RdmaTest, RestsWhenNothingHappens) {
  transport::RdmaOptions options;
  options.lost_after = 60s;  // looks after the peer every 18 s
  TransportPair pair = make(options);
  ASSERT_TRUE(send_frame(*pair.client, 1, 8, 0).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  CheckingHandler handler;
  ASSERT_TRUE(receive_frames(*pair.server, handler, 1).ok());
  const uint64_t before = pair.server->statistics().system_calls;
  ASSERT_TRUE(pair.server->receive(handler, Clock::now() + 3s).ok());
  // To arm, to sleep, to look once more at the deadline; nothing per second.
  EXPECT_LE(pair.server->statistics().system_calls - before, 8u);
}

TEST_F(RdmaTest, TheEndOfTheBootstrapSocketIsTheEnd) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  Fd bootstrap(sockets[0]), other(sockets[1]);
  auto acceptor = transport::RdmaAcceptor::listen(*address_, {});
  ASSERT_TRUE(acceptor.ok());
  Result<std::unique_ptr<transport::Transport>> client = Status(StatusCode::kLost, "not yet");
  std::thread connecting([&] {
    Fd none;
    client = transport::rdma_connect(*address_, (*acceptor)->offer(), {}, none, soon());
  });
  auto server = (*acceptor)->accept(bootstrap, soon());
  connecting.join();
  ASSERT_TRUE(server.ok() && client.ok());
  EXPECT_FALSE(bootstrap.valid());
  std::thread closer([&] {
    std::this_thread::sleep_for(30ms);
    other.reset();
  });
  EXPECT_EQ(end_of(**server), StatusCode::kLost);
  closer.join();
  EXPECT_EQ(end_of(**client), StatusCode::kLost);
}

// The peer is a process that sends as fast as it can.
TEST_F(RdmaTest, AKilledPeerIsLostInTheMiddleOfAWrite) {
  const char* program = std::getenv("FARGPU_TEST_RDMA_PEER");
  if (program == nullptr)
    GTEST_SKIP() << "FARGPU_TEST_RDMA_PEER does not name the program rdma_peer";
  int out[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const pid_t peer = ::fork();
  if (peer == 0) {
    ::dup2(out[1], 1);
    ::execl(program, program, "serve", address_->host().c_str(), "0", nullptr);
    ::_exit(127);
  }
  ::close(out[1]);
  FILE* lines = ::fdopen(out[0], "r");
  unsigned port = 0;
  ASSERT_EQ(std::fscanf(lines, "port %u", &port), 1);
  auto socket = transport::tcp_connect({address_->host(), static_cast<uint16_t>(port)}, soon());
  ASSERT_TRUE(socket.ok());
  auto client = rdma_connect_over(std::move(*socket), {});
  ASSERT_TRUE(client.ok()) << client.status().message();

  struct Handler final : transport::FrameHandler {
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& h, Bytes) override {
      bulk.resize(h.bulk_bytes);
      return std::span(bulk);
    }
    Status on_frame(const wire::FrameHeader&, Bytes, std::span<std::byte>) override {
      ++frames;
      return Status();
    }
    std::vector<std::byte> bulk;
    int frames = 0;
  } handler;
  wire::FrameHeader flood;
  flood.opcode = 101;
  auto slot = (*client)->reserve(sizeof flood, soon());
  ASSERT_TRUE(slot.ok());
  std::memcpy(slot->data(), &flood, sizeof flood);
  ASSERT_TRUE((*client)->commit(sizeof flood, {}, soon()).ok());
  ASSERT_TRUE((*client)->flush(soon()).ok());
  while (handler.frames < 5) ASSERT_TRUE((*client)->receive(handler, soon()).ok());
  ASSERT_EQ(::kill(peer, SIGKILL), 0);
  const auto killed = Clock::now();
  Status status;
  while (status.ok() && Clock::now() < killed + 30s)
    status = (*client)->receive(handler, Clock::now() + 10s).status();
  EXPECT_EQ(status.code(), StatusCode::kLost) << status.message();
  EXPECT_LT(Clock::now() - killed, 10s);
  ::waitpid(peer, nullptr, 0);
  std::fclose(lines);
}

TEST_F(RdmaTest, AForkedChildLetsGoWithoutAWord) {
  TransportPair pair = make();
  const pid_t child = ::fork();
  if (child == 0) {
    pair.client->abandon_after_fork();
    pair.server->abandon_after_fork();
    const bool gone = pair.client->flush(kNoDeadline).code() == StatusCode::kLost &&
                      pair.client->reserve(32, kNoDeadline).status().code() == StatusCode::kLost;
    pair = {};
    ::_exit(gone ? 0 : 1);
  }
  int ended = 1;
  ::waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  ASSERT_TRUE(send_frame(*pair.client, 1, 800, 50'000).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  CheckingHandler handler;
  EXPECT_TRUE(receive_frames(*pair.server, handler, 1).ok());
  EXPECT_EQ(handler.wrong, 0);
}

// By itself, since nothing works afterwards: FARGPU_TEST_RDMA_LINK names the interface that may be
// switched off.
TEST_F(RdmaTest, APortThatGoesDownEndsTheSession) {
  const char* link = std::getenv("FARGPU_TEST_RDMA_LINK");
  if (link == nullptr) GTEST_SKIP() << "FARGPU_TEST_RDMA_LINK names no interface to switch off";
  TransportPair pair = make();
  ASSERT_EQ(std::system(("ip link set " + std::string(link) + " down").c_str()), 0);
  const auto down = Clock::now();
  CheckingHandler handler;
  auto received = pair.client->receive(handler, soon());
  EXPECT_EQ(received.status().code(), StatusCode::kLost);
  EXPECT_NE(received.status().message().find("down"), std::string::npos)
      << received.status().message();
  EXPECT_LT(Clock::now() - down, 10s);
}

}  // namespace
}  // namespace fargpu::test
