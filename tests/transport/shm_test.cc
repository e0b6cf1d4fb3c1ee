// What only shared memory can do: being set up or refused, rings that wrap, sleeping and bells,
// descriptors.
#include "common/transport/shm/shm.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "common/transport/descriptor_passing.h"
#include "common/transport/frame_io.h"
#include "tests/transport/shm_peer.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::DescriptorPassing;
using transport::kNoDeadline;
using transport::ShmSetupMessage;

// --- set-up ---

// The session goes on over the socket after `serve` and `join` have failed.
void expect_in_step(const Fd& one, const Fd& other) {
  const auto bulk = pattern(5000, 1);
  wire::FrameHeader header;
  header.opcode = 77;
  for (auto [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    ASSERT_TRUE(transport::write_one_frame(from->get(), header, {}, bulk, soon()).ok());
    auto frame = transport::read_one_frame(to->get(), {}, soon());
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_EQ(frame->header.opcode, 77);
    EXPECT_TRUE(same(frame->bulk, bulk));
  }
}

TEST(ShmSetup, ServerThatCannotSaysWhyAndTheSocketGoesOn) {
  auto [client, server] = unix_sockets();
  auto served = transport::shm_serve(server, {100'000, 1 << 16}, {}, soon());
  auto joined = transport::shm_join(client, {}, soon());
  EXPECT_EQ(served.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(joined.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(joined.status().message().find("100000"), std::string::npos)
      << joined.status().message();
  expect_in_step(client, server);
}

// Offers what `make` gives as memory, and expects that the client refuses it and both can go on.
void expect_refusal(const std::function<Fd()>& make, const std::string& part_of_reason) {
  auto [client, server] = unix_sockets();
  auto [room, peers_room] = unix_sockets();
  ShmSetupMessage offer;
  offer.type = ShmSetupMessage::kOffer;
  offer.sizes = {1 << 16, 1 << 16};
  const Fd memory = make();
  ASSERT_TRUE(memory.valid());
  const int descriptors[] = {memory.get(), peers_room.get()};
  ASSERT_TRUE(transport::send_with_descriptors(server.get(), std::as_bytes(std::span(&offer, 1)),
                                               descriptors, soon())
                  .ok());
  auto joined = transport::shm_join(client, {}, soon());
  EXPECT_EQ(joined.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(joined.status().message().find(part_of_reason), std::string::npos)
      << joined.status().message();
  ShmSetupMessage answer;
  std::vector<Fd> none;
  ASSERT_TRUE(transport::receive_with_descriptors(
                  server.get(), std::as_writable_bytes(std::span(&answer, 1)), none, soon())
                  .ok());
  EXPECT_EQ(answer.type, ShmSetupMessage::kRefusal);
  EXPECT_NE(std::string(answer.reason).find(part_of_reason), std::string::npos);
  expect_in_step(client, server);
}

constexpr off_t kSegmentBytes = 4096 + 2 * (1 << 16);

Fd memory_of(off_t bytes, int seals, unsigned flags = MFD_ALLOW_SEALING) {
  Fd memory(::memfd_create("test", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(memory.get(), bytes), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  }
  return memory;
}

TEST(ShmSetup, ClientRefusesMemoryThatCouldFault) {
  expect_refusal([] { return memory_of(kSegmentBytes, 0); }, "seals");
  expect_refusal([] { return memory_of(kSegmentBytes, F_SEAL_GROW); }, "seals");
  expect_refusal(
      [] { return memory_of(kSegmentBytes, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE); }, "seals");
  expect_refusal([] { return memory_of(kSegmentBytes - 4096, F_SEAL_GROW | F_SEAL_SHRINK); },
                 "bytes instead of");
  expect_refusal([] { return Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)); }, "not a memfd");
  expect_refusal([] { return Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); }, "not a memfd");
}

TEST(ShmSetup, OtherVersionsAreRefused) {
  auto [client, server] = unix_sockets();
  ShmSetupMessage offer;
  offer.type = ShmSetupMessage::kOffer;
  offer.version = 999;
  ASSERT_TRUE(transport::send_with_descriptors(server.get(), std::as_bytes(std::span(&offer, 1)),
                                               {}, soon())
                  .ok());
  EXPECT_EQ(transport::shm_join(client, {}, soon()).status().code(), StatusCode::kUnsupported);
}

TEST(ShmSetup, WaitsEnd) {
  auto [client, server] = unix_sockets();
  EXPECT_EQ(transport::shm_join(client, {}, Clock::now() + 20ms).status().code(),
            StatusCode::kTimeout);
  EXPECT_EQ(transport::shm_serve(server, {}, {}, Clock::now() + 20ms).status().code(),
            StatusCode::kTimeout);
  auto [other_client, other_server] = unix_sockets();
  other_client.reset();
  EXPECT_EQ(transport::shm_serve(other_server, {}, {}, soon()).status().code(), StatusCode::kLost);
}

TEST(ShmSetup, GarbageIsAProtocolError) {
  auto [client, server] = unix_sockets();
  const auto garbage = pattern(sizeof(ShmSetupMessage), 3);
  ASSERT_TRUE(transport::send_with_descriptors(server.get(), garbage, {}, soon()).ok());
  EXPECT_EQ(transport::shm_join(client, {}, soon()).status().code(), StatusCode::kProtocol);
  ASSERT_TRUE(transport::send_with_descriptors(client.get(), garbage, {}, soon()).ok());
  EXPECT_EQ(transport::shm_serve(server, {}, {}, soon()).status().code(), StatusCode::kProtocol);
}

TEST(ShmSetup, OnlyUnixSockets) {
  Fd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(transport::shm_join(tcp, {}, soon()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(tcp.valid());
}

TEST(ShmSetup, TheMemoryIsSealed) {
  ServerAndPeer f;
  const int memory = f.peer->descriptors[0].get();
  struct stat file {};
  ASSERT_EQ(::fstat(memory, &file), 0);
  EXPECT_EQ(file.st_size, kSegmentBytes);
  EXPECT_NE(::ftruncate(memory, 0), 0);
  EXPECT_NE(::ftruncate(memory, 2 * kSegmentBytes), 0);
  EXPECT_NE(::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), 0);
}

// --- rings ---

TEST(Shm, FramesOfAllSizesWrapAround) {
  // Frames up to several times as large as the ring.
  auto pair = make_shm_pair({}, {1 << 16, 1 << 17});
  constexpr uint32_t kFrames = 4000;
  const auto send_all = [](transport::Transport& end) {
    std::mt19937 random(7);
    for (uint32_t i = 1; i <= kFrames; ++i) {
      const size_t body = 8 * (random() % (i % 100 == 0 ? 20'000 : 60));
      const size_t bulk = random() % 3 == 0 ? random() % (i % 50 == 0 ? 500'000 : 3000) : 0;
      EXPECT_TRUE(send_frame(end, i, body, bulk, 1 + random() % 3).ok());
      if (random() % 4 == 0) {
        EXPECT_TRUE(end.flush(kNoDeadline).ok());
      }
    }
    EXPECT_TRUE(end.flush(kNoDeadline).ok());
  };
  const auto receive_all = [](transport::Transport& end, CheckingHandler& handler) {
    while (handler.headers.size() < kFrames) {
      auto received = end.receive(handler, soon());
      ASSERT_TRUE(received.ok()) << received.status().message();
      ASSERT_GT(*received, 0u);
    }
  };
  CheckingHandler at_client, at_server;
  std::thread threads[] = {std::thread(send_all, std::ref(*pair.client)),
                           std::thread(send_all, std::ref(*pair.server)),
                           std::thread(receive_all, std::ref(*pair.client), std::ref(at_client))};
  receive_all(*pair.server, at_server);
  for (std::thread& thread : threads) thread.join();
  for (const CheckingHandler* handler : {&at_client, &at_server}) {
    EXPECT_EQ(handler->wrong, 0);
    EXPECT_EQ(handler->unaligned, 0);
  }
}

// Receives on a thread of its own until the transport is lost.
struct Receiver {
  explicit Receiver(transport::Transport& end) : transport(end) {}
  ~Receiver() { stop(); }
  void stop() {
    if (!thread.joinable()) return;
    transport.close();
    thread.join();
  }
  struct Handler final : transport::FrameHandler {
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
      bulk.resize(header.bulk_bytes);
      return std::span(bulk);
    }
    Status on_frame(const wire::FrameHeader&, Bytes, std::span<std::byte>) override {
      ++frames;
      return Status();
    }
    std::vector<std::byte> bulk;
    std::atomic<uint64_t> frames{0};
  } handler;
  transport::Transport& transport;
  std::thread thread{[this] {
    while (transport.receive(handler, kNoDeadline).ok()) {
    }
  }};
  void wait_for(uint64_t frames) const {
    while (handler.frames < frames) std::this_thread::sleep_for(100us);
  }
};

// An end that others keep from the processor sleeps, so this is tried until both stay awake.
TEST(Shm, NoSystemCallsWhileBothEndsAreAwake) {
  transport::StreamOptions options;
  options.spin = 120s;
  auto pair = make_shm_pair(options);
  Receiver receiver(*pair.server);
  uint32_t sent = 0;
  const auto send = [&](uint32_t frames) {
    for (uint32_t i = 0; i < frames; ++i) {
      ++sent;
      EXPECT_TRUE(send_frame(*pair.client, sent, 128, sent % 10 == 0 ? 500 : 0).ok());
      EXPECT_TRUE(pair.client->flush(kNoDeadline).ok());
    }
  };
  const auto calls = [&] {
    return pair.client->statistics().system_calls + pair.server->statistics().system_calls;
  };
  bool none = false;
  for (int i = 0; i < 1000 && !none; ++i) {
    send(200);  // wakes the receiver
    const auto before = calls();
    send(500);
    receiver.wait_for(sent - 100);
    none = calls() == before;
  }
  EXPECT_TRUE(none);
}

// Pages of the segment that this thread touches first cost a fault each.
long faults_of_a_mebibyte(transport::Transport& sender) {
  static constexpr std::byte kBody[1024] = {};
  const wire::FrameHeader header = header_of(sizeof kBody, 0);
  EXPECT_TRUE(sender.post(header, kBody).ok());
  rusage before{}, after{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &before), 0);
  for (int i = 0; i < 1024; ++i) EXPECT_TRUE(sender.post(header, kBody).ok());
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &after), 0);
  return after.ru_minflt - before.ru_minflt;
}

TEST(Shm, FramesDoNotFaultOnceMemoryWasTaken) {
  const auto untaken = make_shm_pair({});
  const long faults_before = faults_of_a_mebibyte(*untaken.client);
  const auto taken = make_shm_pair({});
  size_t slices = 1;
  while (taken.client->take_memory(1 << 20)) ++slices;
  EXPECT_FALSE(taken.client->take_memory(1 << 20));
  if (slices == 1) GTEST_SKIP() << "madvise() cannot populate memory before Linux 5.14";
  EXPECT_EQ(slices, 9u);  // two rings of 4 MiB, and a page
  // One for each of the 256 pages, beside those of the program itself, which a sanitizer has many
  // of, the same both times.
  EXPECT_GE(faults_before - faults_of_a_mebibyte(*taken.client), 200);
}

TEST(Shm, OneBellForAManyFramesBurst) {
  auto pair = make_shm_pair({});
  ASSERT_TRUE(pair.server->arm());
  for (uint32_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(send_frame(*pair.client, i, 128, 0).ok());
    ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  }
  EXPECT_EQ(pair.client->statistics().system_calls, 1u);
  CheckingHandler handler;
  ASSERT_TRUE(pair.server->receive(handler, kNoDeadline).ok());
  EXPECT_EQ(handler.headers.size(), 100u);
  // Nobody sleeps: nobody is woken.
  ASSERT_TRUE(send_frame(*pair.client, 101, 128, 0).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  EXPECT_EQ(pair.client->statistics().system_calls, 1u);
}

TEST(Shm, IdleEndsSleep) {
  transport::StreamOptions options;
  options.spin = 100us;
  auto pair = make_shm_pair(options);
  Receiver at_client(*pair.client), at_server(*pair.server);
  const auto calls = [&] {
    return pair.client->statistics().system_calls + pair.server->statistics().system_calls;
  };
  uint64_t before = 0;  // it settles down first
  const auto deadline = soon();
  while (std::exchange(before, calls()) != calls() || before == 0) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::sleep_for(50ms);
  }
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(calls(), before);
  ASSERT_TRUE(send_frame(*pair.client, 1, 8, 0).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  at_server.wait_for(1);
}

TEST(Shm, AForkedChildLetsGoWithoutAWord) {
  auto pair = make_shm_pair({});
  const pid_t child = ::fork();
  if (child == 0) {
    pair.client->abandon_after_fork();
    CheckingHandler handler;
    const bool lost =
        pair.client->receive(handler, kNoDeadline).status().code() == StatusCode::kLost &&
        pair.client->reserve(32, kNoDeadline).status().code() == StatusCode::kLost;
    ::_exit(lost ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(send_frame(*pair.client, 1, 8, 100).ok());
  ASSERT_TRUE(pair.client->flush(kNoDeadline).ok());
  CheckingHandler handler;
  ASSERT_TRUE(pair.server->receive(handler, soon()).ok());
  EXPECT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(handler.wrong, 0);
}

// --- descriptors ---

Fd file_with(uint64_t value) {
  Fd file(::memfd_create("test", 0));  // without close-on-exec: that is for the receiver to set
  EXPECT_EQ(::write(file.get(), &value, sizeof value), static_cast<ssize_t>(sizeof value));
  return file;
}

uint64_t value_in(const Fd& file) {
  uint64_t value = 0;
  EXPECT_EQ(::pread(file.get(), &value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
  return value;
}

// Takes the descriptor whose number is the frame's sequence number.
class TakingHandler final : public transport::FrameHandler {
 public:
  explicit TakingHandler(DescriptorPassing& passing) : passing_(passing) {}
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&, Bytes) override {
    return std::span<std::byte>();
  }
  Status on_frame(const wire::FrameHeader& header, Bytes, std::span<std::byte>) override {
    FARGPU_ASSIGN_OR_RETURN(Fd taken, passing_.take(header.sequence));
    EXPECT_EQ(value_in(taken), header.sequence * 1000);
    EXPECT_EQ(::fcntl(taken.get(), F_GETFD), FD_CLOEXEC);
    ++frames;
    return Status();
  }
  uint32_t frames = 0;

 private:
  DescriptorPassing& passing_;
};

class ShmDescriptors : public ::testing::TestWithParam<bool> {
 protected:
  ShmDescriptors()
      : pair_(make_shm_pair({})),
        from_(GetParam() ? *pair_.server : *pair_.client),
        to_(GetParam() ? *pair_.client : *pair_.server),
        sender_(*from_.descriptor_passing()),
        taker_(*to_.descriptor_passing()) {}

  TransportPair pair_;
  transport::Transport &from_, &to_;
  DescriptorPassing &sender_, &taker_;
};

TEST_P(ShmDescriptors, AreThereBeforeTheirFrames) {
  constexpr uint32_t kRounds = 500;
  std::thread sender([&] {
    for (uint32_t i = 1; i <= kRounds; ++i) {
      for (;;) {
        Status sent = sender_.send(i, file_with(i * 1000).get());
        if (sent.ok()) break;
        ASSERT_EQ(sent.code(), StatusCode::kNoCapacity) << sent.message();
        std::this_thread::sleep_for(100us);
      }
      ASSERT_TRUE(send_frame(from_, i, 16, 0).ok());
      ASSERT_TRUE(from_.flush(kNoDeadline).ok());
    }
  });
  TakingHandler handler(taker_);
  Status status;
  while (status.ok() && handler.frames < kRounds) status = to_.receive(handler, soon()).status();
  sender.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(ShmDescriptors, AreGivenOutOnceByNumber) {
  EXPECT_EQ(taker_.take(1).status().code(), StatusCode::kNotFound);
  for (uint64_t number : {5, 6, 7}) ASSERT_TRUE(sender_.send(number, file_with(number).get()).ok());
  EXPECT_EQ(taker_.take(4).status().code(), StatusCode::kNotFound);
  for (uint64_t number : {6, 5, 7}) {
    auto taken = taker_.take(number);
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(value_in(*taken), number);
  }
  EXPECT_EQ(taker_.take(6).status().code(), StatusCode::kNotFound);
}

TEST_P(ShmDescriptors, AreBounded) {
  const Fd file = file_with(1);
  for (uint64_t i = 0; i < DescriptorPassing::kMaxWaiting; ++i)
    ASSERT_TRUE(sender_.send(i, file.get()).ok()) << i;
  EXPECT_EQ(sender_.send(100, file.get()).code(), StatusCode::kNoCapacity);
  ASSERT_TRUE(taker_.take(9).ok());
  EXPECT_TRUE(sender_.send(100, file.get()).ok());
  EXPECT_EQ(sender_.send(101, file.get()).code(), StatusCode::kNoCapacity);
  EXPECT_TRUE(taker_.take(100).ok());
}

TEST_P(ShmDescriptors, WrongOnesAreRefusedAndDoNoHarm) {
  EXPECT_EQ(sender_.send(1, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sender_.send(1, 987'654).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(sender_.send(1, file_with(3).get()).ok());
  EXPECT_TRUE(taker_.take(1).ok());
}

TEST_P(ShmDescriptors, TakingDoesNotSwallowABell) {
  ASSERT_TRUE(to_.arm());
  ASSERT_TRUE(sender_.send(1, file_with(3).get()).ok());
  ASSERT_TRUE(send_frame(from_, 1, 8, 0).ok());
  ASSERT_TRUE(from_.flush(kNoDeadline).ok());
  ASSERT_TRUE(taker_.take(1).ok());
  EXPECT_FALSE(to_.arm());  // the frame is there, and nobody would ring again
  CheckingHandler handler;
  auto received = to_.receive(handler, soon());
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, 1u);
}

TEST_P(ShmDescriptors, EndWithTheSession) {
  ASSERT_TRUE(sender_.send(1, file_with(3).get()).ok());
  from_.close();
  EXPECT_EQ(sender_.send(2, 0).code(), StatusCode::kLost);
  to_.close();
  EXPECT_EQ(taker_.take(1).status().code(), StatusCode::kLost);
}

INSTANTIATE_TEST_SUITE_P(Ends, ShmDescriptors, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "FromServer" : "FromClient"; });

}  // namespace
}  // namespace fargpu::test
