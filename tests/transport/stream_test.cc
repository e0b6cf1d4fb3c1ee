// What only streams of bytes can do: arrive in pieces, be cut, be garbage; and how TCP connections
// are made.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "common/transport/frame_assembler.h"
#include "common/transport/frame_io.h"
#include "common/transport/tcp.h"
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
  for (int descriptor : {client->get(), server->get()}) {
    const std::pair<int, int> names[] = {
        {IPPROTO_TCP, TCP_NODELAY}, {SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_USER_TIMEOUT}};
    for (auto [level, name] : names) {
      int value = 0;
      socklen_t length = sizeof value;
      ASSERT_EQ(::getsockopt(descriptor, level, name, &value, &length), 0);
      EXPECT_NE(value, 0) << name;
    }
  }
  EXPECT_TRUE(::fcntl(server->get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(transport::peer_name(client->get()), "127.0.0.1:" + std::to_string(listener->port()));
  auto transport = transport::from_fd(std::move(*client), {});
  ASSERT_TRUE(transport.ok());
  EXPECT_EQ((*transport)->describe(), "tcp 127.0.0.1:" + std::to_string(listener->port()));
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
