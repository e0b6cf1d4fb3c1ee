// What only streams of bytes can do: arrive in pieces, be cut, be garbage; and how TCP connections
// are made.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "common/transport/bulk_shares.h"
#include "common/transport/frame_assembler.h"
#include "common/transport/frame_io.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/frames.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;

void append(std::vector<std::byte>& stream, Bytes bytes) {
  const size_t at = stream.size();
  stream.resize(at + bytes.size());
  std::copy(bytes.begin(), bytes.end(), stream.data() + at);
}

// A frame as it is on the wire, with the contents that CheckingHandler expects.
std::vector<std::byte> frame_bytes(uint32_t sequence, size_t body_bytes, size_t bulk_bytes) {
  wire::FrameHeader header;
  header.opcode = 100;
  header.sequence = sequence;
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  header.bulk_bytes = bulk_bytes;
  std::vector<std::byte> stream;
  append(stream, std::as_bytes(std::span(&header, 1)));
  append(stream, pattern(body_bytes, sequence));
  append(stream, pattern(bulk_bytes, ~sequence));
  return stream;
}

// Feeds `stream` in pieces of at most `step(i)` bytes.
Result<size_t> feed(transport::FrameAssembler& assembler, Bytes stream,
                    transport::FrameHandler& handler, const std::function<size_t()>& step) {
  size_t delivered = 0;
  while (!stream.empty()) {
    size_t left = std::min(step(), stream.size()), filled = 0;
    for (auto room : assembler.writable()) {
      const size_t take = std::min(room.size(), left - filled);
      if (take == 0) continue;
      std::memcpy(room.data(), stream.data() + filled, take);
      filled += take;
    }
    EXPECT_GT(filled, 0u);
    stream = stream.subspan(filled);
    auto frames = assembler.advance(filled, handler);
    if (!frames.ok()) return frames.status();
    delivered += *frames;
  }
  return delivered;
}

std::vector<std::byte> mixed_stream(uint32_t frames) {
  std::vector<std::byte> stream;
  std::mt19937 random(7);
  for (uint32_t i = 1; i <= frames; ++i) {
    const size_t body = 8 * (random() % 40), bulk = random() % 4 == 0 ? random() % 3000 : 0;
    append(stream, frame_bytes(i, body, bulk));
  }
  return stream;
}

TEST(FrameAssembler, TakesPiecesOfAnySize) {
  const auto stream = mixed_stream(300);
  for (size_t step : {1u, 3u, 31u, 32u, 33u, 1000u, 1u << 20}) {
    transport::FrameAssembler assembler({});
    CheckingHandler handler;
    auto delivered = feed(assembler, stream, handler, [&] { return step; });
    ASSERT_TRUE(delivered.ok());
    EXPECT_EQ(*delivered, 300u);
    EXPECT_EQ(handler.wrong, 0) << step;
    EXPECT_EQ(handler.unaligned, 0) << step;
    EXPECT_TRUE(assembler.at_boundary());
  }
}

TEST(FrameAssembler, TakesRandomPiecesAndLargeFrames) {
  std::vector<std::byte> stream = mixed_stream(50);
  append(stream, frame_bytes(1000, 1 << 20, 3));
  append(stream, frame_bytes(1001, 1 << 20, 700'001));
  append(stream, frame_bytes(1002, 0, 1));
  append(stream, mixed_stream(50));
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    transport::FrameAssembler assembler({});
    CheckingHandler handler;
    auto delivered =
        feed(assembler, stream, handler, [&] { return 1 + random() % (1u << (random() % 20)); });
    ASSERT_TRUE(delivered.ok());
    EXPECT_EQ(*delivered, 103u);
    EXPECT_EQ(handler.wrong, 0) << seed;
    EXPECT_EQ(handler.unaligned, 0) << seed;
  }
}

TEST(FrameAssembler, KnowsWhetherAFrameIsIncomplete) {
  const auto stream = frame_bytes(1, 16, 10);
  for (size_t cut : {1u, 31u, 32u, 40u, 48u, 57u}) {
    transport::FrameAssembler assembler({});
    CheckingHandler handler;
    ASSERT_TRUE(feed(assembler, Bytes(stream).first(cut), handler, [] { return 1000; }).ok());
    EXPECT_FALSE(assembler.at_boundary()) << cut;
    EXPECT_TRUE(handler.headers.empty());
  }
}

TEST(FrameAssembler, RefusesBrokenHeaders) {
  using Change = void (*)(wire::FrameHeader&);
  const Change changes[] = {
      [](wire::FrameHeader& header) { header.magic = 0x5448; },
      [](wire::FrameHeader& header) { header.flags = 0x8000; },
      [](wire::FrameHeader& header) { header.reserved = 1; },
      [](wire::FrameHeader& header) { header.body_bytes = 12; },
      [](wire::FrameHeader& header) { header.body_bytes = 0xfffffff8; },
      [](wire::FrameHeader& header) { header.bulk_bytes = ~uint64_t{0}; },
      [](wire::FrameHeader& header) { header.bulk_bytes = (64u << 20) + 1; },
  };
  for (Change change : changes) {
    wire::FrameHeader header;
    change(header);
    transport::FrameAssembler assembler({});
    CheckingHandler handler;
    auto stream = frame_bytes(1, 8, 3);  // a good one before it
    append(stream, std::as_bytes(std::span(&header, 1)));
    auto delivered = feed(assembler, stream, handler, [] { return 1000; });
    EXPECT_EQ(delivered.status().code(), StatusCode::kProtocol);
    EXPECT_EQ(handler.headers.size(), 1u);
  }
}

TEST(Stream, HalfAFrameThenCloseIsLost) {
  const auto stream = frame_bytes(1, 64, 100);
  for (size_t cut : {10u, 32u, 60u, 96u, 150u}) {
    auto [transport, socket] = make_unix_transport_and_socket({});
    ASSERT_EQ(::send(socket.get(), stream.data(), cut, 0), static_cast<ssize_t>(cut));
    socket.reset();
    CheckingHandler handler;
    auto received = transport->receive(handler, Clock::now() + 20s);
    EXPECT_EQ(received.status().code(), StatusCode::kLost);
    EXPECT_NE(received.status().message().find("middle of a frame"), std::string::npos);
    EXPECT_TRUE(handler.headers.empty());
  }
}

TEST(Stream, GarbageEndsTheConnectionWithAClearError) {
  auto [transport, socket] = make_unix_transport_and_socket({});
  const std::string request = "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
  ASSERT_EQ(::send(socket.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  CheckingHandler handler;
  auto received = transport->receive(handler, Clock::now() + 20s);
  EXPECT_EQ(received.status().code(), StatusCode::kProtocol);
  EXPECT_NE(received.status().message().find("does not speak fargpu"), std::string::npos);
  char byte;
  while (::recv(socket.get(), &byte, 1, 0) > 0) {
  }  // closed for the peer as well
}

TEST(Stream, DeadlineInTheMiddleOfBulkResumes) {
  auto [transport, socket] = make_unix_transport_and_socket({});
  const auto stream = frame_bytes(9, 24, 5000);
  CheckingHandler handler;
  for (size_t begin = 0; begin < stream.size(); begin += 1000) {
    const size_t bytes = std::min<size_t>(1000, stream.size() - begin);
    ASSERT_EQ(::send(socket.get(), stream.data() + begin, bytes, 0), static_cast<ssize_t>(bytes));
    auto received = transport->receive(handler, Clock::now() + 2ms);
    ASSERT_TRUE(received.ok());
  }
  ASSERT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(handler.wrong, 0);
}

TEST(Stream, StalledPeerIsLost) {
  transport::StreamOptions options;
  options.stall_timeout = 50ms;
  auto pair = make_unix_pair(options);
  Status status;
  while (status.ok()) status = send_frame(*pair.client, 1, 8, 100'000);  // nobody reads
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_NE(status.message().find("took no data"), std::string::npos) << status.message();
}

// What is set aside comes before what is committed later, whoever sends it.
TEST(Stream, FramesThatAreAsideKeepTheirOrder) {
  auto pair = make_unix_pair({});
  transport::Transport& client = *pair.client;
  ASSERT_TRUE(client.capabilities().sends_aside);
  CheckingHandler handler;
  const auto frames = [&] {
    auto received = pair.server->receive(handler, Clock::now() + 1ms);
    EXPECT_TRUE(received.ok());
    return handler.headers.size();
  };
  ASSERT_TRUE(send_frame(client, 1, 64, 0).ok());
  EXPECT_TRUE(client.set_aside());
  ASSERT_TRUE(send_frame(client, 2, 64, 0).ok());
  EXPECT_FALSE(client.set_aside()) << "the first frame is still aside";
  EXPECT_EQ(frames(), 0u) << "nobody has sent it";
  ASSERT_TRUE(client.send_aside().ok());
  EXPECT_EQ(frames(), 1u) << "the second frame is not aside";
  EXPECT_TRUE(client.set_aside());
  ASSERT_TRUE(send_frame(client, 3, 64, 100'000).ok());  // leaves at once
  EXPECT_EQ(frames(), 3u);
  ASSERT_TRUE(send_frame(client, 4, 64, 0).ok());
  EXPECT_TRUE(client.set_aside());
  ASSERT_TRUE(send_frame(client, 5, 64, 0).ok());
  ASSERT_TRUE(client.flush(kNoDeadline).ok());
  EXPECT_EQ(frames(), 5u);
  for (size_t i = 0; i < handler.headers.size(); ++i) EXPECT_EQ(handler.headers[i].sequence, i + 1);
  EXPECT_EQ(handler.wrong, 0);
}

TEST(Stream, APeerThatTakesNothingLeavesFramesAside) {
  auto pair = make_unix_pair({});
  transport::Transport& client = *pair.client;
  uint32_t sent = 0;
  Status status;
  while (status.ok()) {  // nobody reads
    ASSERT_TRUE(send_frame(client, ++sent, 1000, 0).ok());
    ASSERT_TRUE(client.set_aside());
    status = client.send_aside();
  }
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  ASSERT_TRUE(send_frame(client, ++sent, 1000, 0).ok());
  EXPECT_EQ(client.flush(Clock::now()).code(), StatusCode::kTimeout);
  CheckingHandler handler;
  while (client.send_aside().code() == StatusCode::kTimeout)
    ASSERT_TRUE(pair.server->receive(handler, Clock::now() + 1ms).ok());
  ASSERT_TRUE(client.flush(kNoDeadline).ok());
  while (handler.headers.size() < sent)
    ASSERT_TRUE(pair.server->receive(handler, Clock::now() + 20s).ok());
  EXPECT_EQ(handler.wrong, 0);
}

// While another thread is at the socket it cannot be told whether that will send all.
TEST(Stream, WhatAnotherThreadMayNotSendIsSaidToBeLeft) {
  auto pair = make_unix_pair({});
  transport::Transport& client = *pair.client;
  uint32_t sent = 0;
  do {  // nobody reads
    ASSERT_TRUE(send_frame(client, ++sent, 1000, 0).ok());
    ASSERT_TRUE(client.set_aside());
  } while (client.send_aside().ok());
  ASSERT_TRUE(send_frame(client, ++sent, 1000, 0).ok());
  std::thread flushing([&] { EXPECT_TRUE(client.flush(kNoDeadline).ok()); });
  for (const auto end = Clock::now() + 50ms; Clock::now() < end;)
    ASSERT_EQ(client.send_aside().code(), StatusCode::kTimeout);
  CheckingHandler handler;
  while (handler.headers.size() < sent)
    ASSERT_TRUE(pair.server->receive(handler, Clock::now() + 20s).ok());
  flushing.join();
  EXPECT_TRUE(client.send_aside().ok());
  EXPECT_EQ(handler.wrong, 0);
}

// Two threads, under a lock as a channel has one: one commits and now and then flushes, the other
// one sends aside.
TEST(Stream, AThreadMaySendAsideBesideTheSender) {
  constexpr uint32_t kFrames = 20'000;
  auto pair = make_unix_pair({});
  std::mutex sending;
  std::atomic<bool> done{false};
  std::thread aside([&] {
    while (!done) {
      {
        const std::lock_guard lock(sending);
        if (!pair.client->set_aside()) continue;
      }
      const Status status = pair.client->send_aside();
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kTimeout) << status.message();
    }
  });
  std::thread sender([&] {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      const std::lock_guard lock(sending);
      EXPECT_TRUE(send_frame(*pair.client, i, 8 * (i % 40), i % 50 == 0 ? 20'000 : 0).ok());
      if (i % 300 == 0 || i == kFrames) EXPECT_TRUE(pair.client->flush(kNoDeadline).ok());
    }
  });
  CheckingHandler handler;
  while (handler.headers.size() < kFrames) {
    auto received = pair.server->receive(handler, Clock::now() + 60s);
    ASSERT_TRUE(received.ok() && *received > 0);
  }
  sender.join();
  done = true;
  aside.join();
  EXPECT_EQ(handler.wrong, 0);
  for (size_t i = 0; i < handler.headers.size(); ++i) ASSERT_EQ(handler.headers[i].sequence, i + 1);
}

TEST(Stream, InitialBytesComeFirst) {
  auto stream = mixed_stream(20);
  for (size_t already_read : {size_t{1}, size_t{40}, stream.size() / 2, stream.size()}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    Fd peer(ends[1]);
    transport::StreamOptions options;
    options.initial_bytes.assign(stream.begin(),
                                 stream.begin() + static_cast<std::ptrdiff_t>(already_read));
    auto transport = transport::from_fd(Fd(ends[0]), options);
    ASSERT_TRUE(transport.ok());
    const size_t rest = stream.size() - already_read;
    ASSERT_EQ(::send(peer.get(), stream.data() + already_read, rest, 0),
              static_cast<ssize_t>(rest));
    CheckingHandler handler;
    while (handler.headers.size() < 20)
      ASSERT_TRUE((*transport)->receive(handler, Clock::now() + 20s).ok());
    EXPECT_EQ(handler.wrong, 0);
    EXPECT_EQ(handler.unaligned, 0);
  }
}

// --- several connections ---

TEST(BulkShares, CoverTheBulkOnceAndInOrder) {
  for (size_t connections : {1u, 2u, 3u, 7u, 16u}) {
    for (uint64_t bulk :
         {uint64_t{0}, uint64_t{1}, transport::kLeastSharedBytes - 1, transport::kLeastSharedBytes,
          transport::kLeastSharedBytes + 1, uint64_t{64} << 20, (uint64_t{64} << 20) + 12345}) {
      uint64_t end = 0;
      for (size_t i = 0; i < connections; ++i) {
        const transport::Share share = transport::share_of(bulk, connections, i);
        if (share.bytes > 0) {
          EXPECT_EQ(share.offset, end);
        }
        end += share.bytes;
      }
      EXPECT_EQ(end, bulk) << connections;
      if (bulk < transport::kLeastSharedBytes) {
        EXPECT_EQ(transport::share_of(bulk, connections, 0).bytes, bulk);
      }
    }
  }
}

// A transport over three unix sockets and the bare other ends.
struct Several {
  explicit Several(const transport::StreamOptions& options = {}) {
    std::vector<Fd> ours;
    for (Fd& peer : peers) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      ours.push_back(Fd(ends[0]));
      peer.reset(ends[1]);
    }
    auto made = transport::from_fds(std::move(ours), options);
    EXPECT_TRUE(made.ok());
    transport = std::move(*made);
  }
  // A frame's bytes as they are on each connection.
  std::array<std::vector<std::byte>, 3> parts(uint32_t sequence, size_t body, size_t bulk) {
    const auto whole = frame_bytes(sequence, body, bulk);
    const size_t front = sizeof(wire::FrameHeader) + body;
    std::array<std::vector<std::byte>, 3> parts;
    parts[0].assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(front));
    for (size_t i = 0; i < 3; ++i) {
      const transport::Share share = transport::share_of(bulk, 3, i);
      append(parts[i], Bytes(whole).subspan(front + share.offset, share.bytes));
    }
    return parts;
  }
  void send(size_t connection, Bytes bytes) {
    ASSERT_EQ(::send(peers[connection].get(), bytes.data(), bytes.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(bytes.size()));
  }
  std::array<Fd, 3> peers;
  std::unique_ptr<transport::Transport> transport;
};

constexpr size_t kShared = transport::kLeastSharedBytes + 100;

TEST(SeveralConnections, SharesMayComeInAnyOrder) {
  std::array<size_t, 3> order{0, 1, 2};
  do {
    Several several;
    CheckingHandler handler;
    const auto first = several.parts(1, 24, kShared), second = several.parts(2, 0, 10);
    for (size_t connection : order) {
      several.send(connection, first[connection]);
      if (connection == 0) several.send(0, second[0]);  // must wait for the bulk before it
      ASSERT_TRUE(several.transport->receive(handler, Clock::now() + 2ms).ok());
    }
    ASSERT_TRUE(several.transport->receive(handler, Clock::now() + 2ms).ok());
    ASSERT_EQ(handler.headers.size(), 2u);
    EXPECT_EQ(handler.headers[0].sequence, 1u);
    EXPECT_EQ(handler.wrong, 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SeveralConnections, DescriptorShowsWhatIsMissingAndNothingElse) {
  Several several;
  CheckingHandler handler;
  const auto parts = several.parts(1, 24, kShared);
  const auto shown = [&] {
    EXPECT_TRUE(several.transport->arm());
    pollfd entry{several.transport->poll_descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  several.send(2, parts[2]);
  EXPECT_FALSE(shown()) << "nobody knows yet what it is for";
  several.send(0, parts[0]);
  EXPECT_TRUE(shown());
  ASSERT_TRUE(several.transport->receive(handler, Clock::now()).ok());
  several.send(0, several.parts(2, 8, 0)[0]);
  EXPECT_FALSE(shown()) << "the next frame has to wait";
  several.send(1, parts[1]);
  EXPECT_TRUE(shown());
  ASSERT_TRUE(several.transport->receive(handler, Clock::now()).ok());
  EXPECT_EQ(handler.headers.size(), 2u);
  EXPECT_FALSE(shown());
}

TEST(SeveralConnections, EndOfOneIsTheEnd) {
  for (size_t connection : {0u, 1u, 2u}) {
    for (bool in_bulk : {false, true}) {
      Several several;
      CheckingHandler handler;
      if (in_bulk) several.send(0, several.parts(1, 24, kShared)[0]);
      several.peers[connection].reset();
      const auto begin = Clock::now();
      auto received = several.transport->receive(handler, Clock::now() + 20s);
      EXPECT_EQ(received.status().code(), StatusCode::kLost) << connection << in_bulk;
      EXPECT_LT(Clock::now() - begin, 5s);
      EXPECT_EQ(send_frame(*several.transport, 1, 8, 0).code(), StatusCode::kLost);
      // For the peer too.
      for (const Fd& peer : several.peers) {
        char byte;
        if (peer.valid()) {
          EXPECT_LE(::recv(peer.get(), &byte, 1, 0), 0);
        }
      }
    }
  }
}

TEST(SeveralConnections, FramesBeforeTheEndOfAnotherConnectionStillArrive) {
  Several several;
  CheckingHandler handler;
  several.peers[1].reset();
  ASSERT_TRUE(several.transport->receive(handler, Clock::now() + 20ms).ok());
  several.send(0, several.parts(1, 8, 100)[0]);
  ASSERT_TRUE(several.transport->receive(handler, Clock::now() + 20ms).ok());
  EXPECT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(several.transport->receive(handler, Clock::now() + 20s).status().code(),
            StatusCode::kLost);
}

// A peer that takes nothing on one connection holds up the frame until its deadline; half a frame
// cannot be taken back.
TEST(SeveralConnections, StallOfOneIsAStall) {
  transport::StreamOptions options;
  options.stall_timeout = 50ms;
  Several several(options);
  std::thread reader([&] {
    std::vector<char> room(1 << 20);
    while (::recv(several.peers[0].get(), room.data(), room.size(), 0) > 0) {
    }
  });
  Status status;
  while (status.ok()) status = send_frame(*several.transport, 1, 8, 1 << 20);
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_NE(status.message().find("took no data"), std::string::npos) << status.message();
  reader.join();
}

TEST(SeveralConnections, AreAtMostSixteen) {
  std::vector<Fd> sockets;
  EXPECT_EQ(transport::from_fds({}, {}).status().code(), StatusCode::kInvalidArgument);
  for (size_t i = 0; i <= transport::kMaxConnections; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    sockets.push_back(Fd(ends[0]));
    ::close(ends[1]);
  }
  EXPECT_EQ(transport::from_fds(std::move(sockets), {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(FrameIo, ConsumesExactlyOneFrame) {
  auto [transport, socket] = make_unix_transport_and_socket({});
  ASSERT_TRUE(send_frame(*transport, 1, 40, 9).ok());
  ASSERT_TRUE(send_frame(*transport, 2, 8, 0).ok());
  ASSERT_TRUE(transport->flush(kNoDeadline).ok());
  auto first = transport::read_one_frame(socket.get(), {}, Clock::now() + 20s);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->header.sequence, 1u);
  EXPECT_EQ(std::vector(first->body().begin(), first->body().end()), pattern(40, 1));
  EXPECT_EQ(first->bulk, pattern(9, ~1u));
  // The rest belongs to whoever adopts the socket.
  auto adopted = transport::from_fd(std::move(socket), {});
  ASSERT_TRUE(adopted.ok());
  CheckingHandler handler;
  ASSERT_TRUE((*adopted)->receive(handler, Clock::now() + 20s).ok());
  ASSERT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(handler.headers[0].sequence, 2u);
  EXPECT_EQ(handler.wrong, 0);
}

TEST(FrameIo, RefusesTooMuchAndKeepsItsDeadline) {
  auto [transport, socket] = make_unix_transport_and_socket({});
  wire::FrameLimits small;
  small.max_body_bytes = 4096;
  small.max_bulk_bytes = 0;
  EXPECT_EQ(transport::read_one_frame(socket.get(), small, Clock::now() + 20ms).status().code(),
            StatusCode::kTimeout);
  ASSERT_TRUE(send_frame(*transport, 1, 8, 1).ok());
  ASSERT_TRUE(transport->flush(kNoDeadline).ok());
  EXPECT_EQ(transport::read_one_frame(socket.get(), small, Clock::now() + 20s).status().code(),
            StatusCode::kProtocol);
}

TEST(FrameIo, WritesWhatATransportReads) {
  auto [transport, socket] = make_unix_transport_and_socket({});
  wire::FrameHeader header;
  header.opcode = 100;
  header.sequence = 3;
  ASSERT_TRUE(transport::write_one_frame(socket.get(), header, pattern(48, 3), pattern(5, ~3u),
                                         Clock::now() + 20s)
                  .ok());
  CheckingHandler handler;
  ASSERT_TRUE(transport->receive(handler, Clock::now() + 20s).ok());
  ASSERT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(handler.wrong, 0);
}

TEST(Tcp, ConnectionsHaveTheirOptions) {
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  ASSERT_NE(listener->port(), 0);
  auto client = transport::tcp_connect({"localhost", listener->port()}, Clock::now() + 20s);
  ASSERT_TRUE(client.ok()) << client.status().message();
  auto server = listener->accept(Clock::now() + 20s);
  ASSERT_TRUE(server.ok());
  const auto option = [](int descriptor, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(descriptor, level, name, &value, &length), 0);
    return value;
  };
  for (int descriptor : {client->get(), server->get()}) {
    EXPECT_NE(option(descriptor, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option(descriptor, SOL_SOCKET, SO_KEEPALIVE), 0);
  }
  EXPECT_EQ(option(server->get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
  EXPECT_TRUE(::fcntl(server->get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(transport::peer_name(client->get()), "127.0.0.1:" + std::to_string(listener->port()));
  auto transport = transport::from_fd(std::move(*client), {});
  ASSERT_TRUE(transport.ok());
  EXPECT_EQ((*transport)->describe(), "tcp 127.0.0.1:" + std::to_string(listener->port()));
  EXPECT_EQ(option((*transport)->peer_socket(), IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
  // The system would end a connection whose window stays closed, however much the peer says.
  transport::StreamOptions patient;
  patient.stall_timeout = transport::StreamOptions::kNeverStalls;
  auto judges_by_itself = transport::from_fd(std::move(*server), patient);
  ASSERT_TRUE(judges_by_itself.ok());
  EXPECT_EQ(option((*judges_by_itself)->peer_socket(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

TEST(Tcp, ListensOnEveryAddress) {
  auto listener = transport::TcpListener::open({"*", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_TRUE(transport::tcp_connect({"127.0.0.1", listener->port()}, Clock::now() + 20s).ok());
}

TEST(Tcp, RefusedConnectionSaysWhatToDo) {
  uint16_t port;
  {
    auto listener = transport::TcpListener::open({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    port = listener->port();
  }
  auto refused = transport::tcp_connect({"127.0.0.1", port}, Clock::now() + 20s);
  ASSERT_EQ(refused.status().code(), StatusCode::kLost);
  EXPECT_NE(refused.status().message().find("is fargpud running"), std::string::npos);
}

TEST(Tcp, UnknownHostIsNotFound) {
  auto unknown = transport::tcp_connect({"host.invalid", 1}, Clock::now() + 20s);
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound) << unknown.status().message();
}

TEST(Tcp, BusyPortIsAnError) {
  auto first = transport::TcpListener::open({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok());
  auto second = transport::TcpListener::open({"127.0.0.1", first->port()});
  EXPECT_EQ(second.status().code(), StatusCode::kSystem);
  EXPECT_NE(second.status().message().find("cannot listen"), std::string::npos);
}

TEST(Tcp, AcceptKeepsItsDeadlineAndCanBeStopped) {
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(listener->accept(Clock::now() + 10ms).status().code(), StatusCode::kTimeout);
  std::thread stopper([&] {
    std::this_thread::sleep_for(20ms);
    listener->stop();
  });
  EXPECT_EQ(listener->accept(kNoDeadline).status().code(), StatusCode::kLost);
  EXPECT_EQ(listener->accept(kNoDeadline).status().code(), StatusCode::kLost);
  stopper.join();
}

TEST(FromFd, RefusesWhatIsNoStreamSocket) {
  EXPECT_FALSE(transport::from_fd(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), {}).ok());
  EXPECT_EQ(transport::from_fd(Fd(::socket(AF_INET, SOCK_DGRAM, 0)), {}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(transport::from_fd(Fd(), {}).ok());
}

}  // namespace
}  // namespace fargpu::test
