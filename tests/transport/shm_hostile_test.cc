// A peer that writes what it likes into shared memory and sockets, or dies: its session ends, and
// nothing else happens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "common/transport/descriptor_passing.h"
#include "tests/transport/shm_peer.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;

// Reads everything twice, as a reader of Cap'n Proto might.
class DoubtingHandler final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes body) override {
    look_twice(header, body);
    bulk_.resize(header.bulk_bytes);
    bulk_begun = true;
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override {
    look_twice(header, body);
    if (bulk.size() != header.bulk_bytes || body.size() != header.body_bytes) ++changed;
    ++frames;
    return Status();
  }
  std::atomic<bool> bulk_begun{false};
  uint64_t frames = 0, changed = 0;

 private:
  void look_twice(const wire::FrameHeader& header, Bytes body) {
    const std::vector<std::byte> first(body.begin(), body.end());
    const wire::FrameHeader header_first = header;
    for (int i = 0; i < 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!same(first, body) || std::memcmp(&header_first, &header, sizeof header) != 0) ++changed;
  }
  std::vector<std::byte> bulk_;
};

void expect_protocol_error(ServerAndPeer& f) {
  DoubtingHandler handler;
  EXPECT_EQ(f.server->receive(handler, soon()).status().code(), StatusCode::kProtocol);
  EXPECT_EQ(f.server->receive(handler, soon()).status().code(), StatusCode::kLost);
  EXPECT_EQ(f.server->reserve(32, soon()).status().code(), StatusCode::kLost);
}

TEST(ShmHostile, ImpossibleTails) {
  for (uint64_t tail : {uint64_t{65537}, uint64_t{1} << 63, ~uint64_t{0}}) {
    ServerAndPeer f;
    f.peer->out().tail = tail;
    expect_protocol_error(f);
  }
}

TEST(ShmHostile, ATailThatGoesBack) {
  ServerAndPeer f;
  f.peer->write_at_begin(header_of(800, 0), {});
  f.peer->out().tail = 500;
  DoubtingHandler handler;
  ASSERT_TRUE(f.server->receive(handler, Clock::now() + 10ms).ok());
  f.peer->out().tail = 400;
  expect_protocol_error(f);
}

TEST(ShmHostile, ImpossibleHeads) {
  for (uint64_t head : {uint64_t{1} << 30, uint64_t{1} << 62, ~uint64_t{0}}) {
    ServerAndPeer f;
    f.peer->in().head = head;
    Status status;
    for (int i = 0; status.ok() && i < 100; ++i)
      status = send_frame(*f.server, 1, 60'000, 0, 1, soon());
    EXPECT_EQ(status.code(), StatusCode::kProtocol) << head;
  }
}

TEST(ShmHostile, BrokenHeaders) {
  for (int field = 0; field < 4; ++field) {
    ServerAndPeer f;
    wire::FrameHeader header = header_of(16, 0);
    if (field == 0) header.magic = 1;
    if (field == 1) header.body_bytes = 17;
    if (field == 2) header.body_bytes = 1u << 31;
    if (field == 3) header.bulk_bytes = ~uint64_t{0};
    f.peer->write_at_begin(header, {});
    f.peer->out().tail = 1000;
    expect_protocol_error(f);
  }
}

TEST(ShmHostile, RubbishBesideTheRings) {
  for (const std::byte first : {std::byte{0}, std::byte{3}, std::byte{0xff}}) {
    ServerAndPeer f;
    ASSERT_EQ(::send(f.peer->session.get(), &first, 1, 0), 1);
    expect_protocol_error(f);
  }
}

TEST(ShmHostile, DescriptorsWithoutRecordsAndRecordsWithoutDescriptors) {
  const std::byte bell[] = {std::byte{1}};
  const std::byte record[9] = {std::byte{2}};
  for (const bool with_descriptor : {true, false}) {
    ServerAndPeer f;
    const int one[] = {f.peer->session.get()};
    ASSERT_TRUE(transport::send_with_descriptors(
                    f.peer->session.get(), with_descriptor ? Bytes(bell) : Bytes(record),
                    with_descriptor ? std::span<const int>(one) : std::span<const int>(), soon())
                    .ok());
    expect_protocol_error(f);
  }
  ServerAndPeer f;  // two in one record
  const int two[] = {f.peer->session.get(), f.peer->session.get()};
  ASSERT_TRUE(transport::send_with_descriptors(f.peer->session.get(), record, two, soon()).ok());
  expect_protocol_error(f);
}

size_t open_descriptors() {
  size_t count = 0;
  for (int i = 0; i < 1024; ++i) count += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(ShmHostile, MoreDescriptorsThanAllowed) {
  const size_t before = open_descriptors();
  {
    ServerAndPeer f;
    const std::byte record[9] = {std::byte{2}};
    const int one[] = {f.peer->session.get()};
    for (unsigned i = 0; i <= transport::DescriptorPassing::kMaxWaiting; ++i) {
      ASSERT_TRUE(
          transport::send_with_descriptors(f.peer->session.get(), record, one, soon()).ok());
    }
    auto taken = f.server->descriptor_passing()->take(77);
    while (taken.status().code() == StatusCode::kNotFound)
      taken = f.server->descriptor_passing()->take(77);
    EXPECT_EQ(taken.status().code(), StatusCode::kProtocol);
    EXPECT_EQ(f.server->descriptor_passing()->take(0).status().code(), StatusCode::kLost);
  }
  EXPECT_EQ(open_descriptors(), before);  // whatever came was closed
}

// The ring stays full, and the bell for room never stops.
TEST(ShmHostile, RingingAlonePostponesNothing) {
  transport::ShmOptions options;
  options.stall_timeout = 100ms;
  ServerAndPeer f(options);
  std::atomic<bool> stop{false};
  std::thread ringer([&] {
    const std::byte bell{1};
    while (!stop) (void)::send(f.peer->descriptors[1].get(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  Status status;
  while (status.ok()) status = send_frame(*f.server, 1, 800, 0, 1, Clock::now() + 20ms);
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  status = send_frame(*f.server, 1, 800, 0, 1, kNoDeadline);
  EXPECT_EQ(status.code(), StatusCode::kLost);
  stop = true;
  ringer.join();
}

TEST(ShmHostile, ClosingTheSocketForRoomEndsTheSession) {
  ServerAndPeer f;
  ASSERT_EQ(::shutdown(f.peer->descriptors[1].get(), SHUT_RDWR), 0);
  Status status;
  while (status.ok()) status = send_frame(*f.server, 1, 800, 0, 1, soon());
  EXPECT_EQ(status.code(), StatusCode::kLost);
}

// Thousands of sessions whose peer fills every shared word and some of the ring with numbers that
// are often nearly right.
TEST(ShmHostile, RandomRubbishEverywhere) {
  std::mt19937_64 random(11);
  const auto number = [&]() -> uint64_t {
    switch (random() % 6) {
      case 0:
        return random();
      case 1:
        return random() % 65;
      case 2:
        return 65536 - random() % 65;
      case 3:
        return random() % 200'000;
      case 4:
        return ~uint64_t{0} - random() % 65;
      default:
        return 8 * (random() % 100);
    }
  };
  uint64_t frames = 0, lost = 0;
  for (int round = 0; round < 3000; ++round) {
    ServerAndPeer f;
    RawPeer& peer = *f.peer;
    DoubtingHandler handler;
    for (int step = 0; step < 8; ++step) {
      for (uint64_t at = 0; at < 4096; at += random() % 1024) {
        wire::FrameHeader header = header_of(static_cast<uint32_t>(number()), number());
        if (random() % 3 == 0) header = header_of(8 * (random() % 30), random() % 100);
        std::memcpy(peer.out_data().data() + at, &header, sizeof header);
      }
      for (transport::RingControl* control : {&peer.out(), &peer.in()}) {
        if (random() % 4 == 0) control->tail = number();
        if (random() % 4 == 0) control->head = number();
        if (random() % 2 == 0) control->consumer_sleeps = static_cast<uint32_t>(number());
        if (random() % 2 == 0) control->producer_wants = number();
        if (random() % 2 == 0) control->descriptors_taken = number();
      }
      if (random() % 3 == 0) peer.out().tail = number() % 4096;
      if (random() % 8 == 0) peer.bell();
      const auto past = Clock::now() - 1s;
      (void)f.server->arm();
      (void)f.server->receive(handler, past);
      (void)f.server->descriptor_passing()->send(1, peer.session.get());
      (void)f.server->descriptor_passing()->take(number());
      (void)send_frame(*f.server, 1, 8 * (random() % 1000),
                       random() % 4 == 0 ? random() % 80'000 : 0, 1, past);
      (void)f.server->flush(past);
      if (f.server->reserve(32, past).status().code() == StatusCode::kLost) {
        ++lost;
        break;
      }
    }
    frames += handler.frames;
    ASSERT_EQ(handler.changed, 0u);
  }
  // The numbers are good enough to get everywhere.
  EXPECT_GT(frames, 100u);
  EXPECT_GT(lost, 1000u);
}

// A frame is right while it is being checked, and something else right after that.
TEST(ShmHostile, BytesThatChangeWhileTheyAreRead) {
  ServerAndPeer f;
  std::atomic<bool> stop{false};
  RawPeer& peer = *f.peer;
  // One frame of 64 bytes after the other; what is in them changes all the time.
  std::thread writer([&] {
    std::mt19937_64 random(5);
    const auto size = peer.out_data().size();
    for (size_t at = 0; at < size; at += 64) {
      const auto header = header_of(32, 0);
      std::memcpy(peer.out_data().data() + at, &header, sizeof header);
    }
    uint64_t tail = 0;
    while (!stop) {
      tail = std::min(tail + 64 * (random() % 8), peer.out().head.load() + size);
      peer.out().tail = tail;
      if (peer.out().consumer_sleeps.exchange(0) != 0) peer.bell();
      for (int i = 0; i < 200; ++i) {
        // The bodies only: the headers stay right, so that the session lives.
        auto* word = reinterpret_cast<uint64_t*>(peer.out_data().data() +
                                                 64 * (random() % (size / 64)) + 32);
        std::atomic_ref(word[random() % 4]).store(random(), std::memory_order_relaxed);
      }
    }
  });
  DoubtingHandler handler;
  Status status;
  while (status.ok() && handler.frames < 20'000)
    status = f.server->receive(handler, soon()).status();
  EXPECT_TRUE(status.ok()) << status.message();
  stop = true;
  writer.join();
  EXPECT_EQ(handler.changed, 0u);
}

// --- death of a real process ---

struct Child {
  // Runs `body` with the client's socket in a process of its own, which then only waits for its
  // end.
  Child(Fd socket, const std::function<void(RawPeer&)>& body) {
    pid = ::fork();
    if (pid == 0) {
      RawPeer peer(std::move(socket));
      body(peer);
      for (;;) ::pause();
    }
  }
  ~Child() { kill(); }
  void kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid = -1;
};

struct ServerAndChild {
  explicit ServerAndChild(const std::function<void(RawPeer&)>& body) {
    auto [client_socket, server_socket] = unix_sockets();
    // The child must not hold the server's end, or its own death would not be seen.
    server_end = server_socket.get();
    child.emplace(std::move(client_socket), [&, body](RawPeer& peer) {
      ::close(server_end);
      body(peer);
    });
    auto made = transport::shm_serve(server_socket, {1 << 16, 1 << 16}, {}, soon());
    FARGPU_CHECK(made.ok());
    server = std::move(*made);
  }
  int server_end = -1;
  std::optional<Child> child;
  std::unique_ptr<transport::Transport> server;
};

TEST(ShmDeath, InTheMiddleOfAFrame) {
  ServerAndChild f([](RawPeer& peer) {
    peer.write_at_begin(header_of(0, 1 << 20), {});
    peer.out().tail = 5000;
    peer.bell();
  });
  DoubtingHandler handler;
  std::thread killer([&] {
    while (!handler.bulk_begun) std::this_thread::sleep_for(1ms);
    f.child->kill();
  });
  auto received = f.server->receive(handler, soon());
  killer.join();
  EXPECT_EQ(received.status().code(), StatusCode::kLost);
  EXPECT_NE(received.status().message().find("middle of a frame"), std::string::npos)
      << received.status().message();
}

TEST(ShmDeath, WhileWeWaitForRoom) {
  ServerAndChild f([](RawPeer&) {});
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    f.child->kill();
  });
  Status status;
  while (status.ok()) status = send_frame(*f.server, 1, 8, 100'000, 1, soon());
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kLost) << status.message();
}

// One that polls and never sleeps sees it too.
TEST(ShmDeath, WhileWePoll) {
  ServerAndChild f([](RawPeer&) {});
  f.child->kill();
  DoubtingHandler handler;
  const auto deadline = soon();
  Status status;
  while (status.ok() && Clock::now() < deadline) {
    status = f.server->receive(handler, Clock::now() - 1s).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kLost);
}

TEST(ShmDeath, APeerThatTakesNothingIsLost) {
  transport::ShmOptions options;
  options.stall_timeout = 50ms;
  ServerAndPeer f(options);
  Status status;
  while (status.ok()) status = send_frame(*f.server, 1, 8, 100'000, 1, kNoDeadline);
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_NE(status.message().find("took no data"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace fargpu::test
