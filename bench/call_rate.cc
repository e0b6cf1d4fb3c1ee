// Rates of the layers below the CUDA calls: an empty call there and back, async calls, and bulk
// bytes; each next to what a bare TCP socket does with as many bytes. Both ends are threads of this
// process, connected over loopback TCP.
#include <benchmark/benchmark.h>
#include <capnp/any.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/responder.h"
#include "common/transport/link/emulated_link.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_segment.h"
#include "common/transport/tcp/tcp.h"
#include "common/wire/control.h"

namespace {

using namespace fargpu;
using transport::Clock;
using transport::kNoDeadline;
using Bytes = std::span<const std::byte>;

constexpr uint16_t kNull = 100, kAsync = 101, kRead = 102, kWork = 103;
constexpr size_t kFrameBytes = sizeof(wire::FrameHeader);

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "call_rate: %s failed\n", what);
  std::exit(1);
}

std::pair<std::vector<Fd>, std::vector<Fd>> tcp_sockets(size_t connections) {
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  require(listener.ok(), "listen");
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  std::pair<std::vector<Fd>, std::vector<Fd>> sockets;
  for (size_t i = 0; i < connections; ++i) {
    auto client = transport::tcp_connect({"127.0.0.1", listener->port()}, deadline);
    require(client.ok(), "connect");
    auto server = listener->accept(deadline);
    require(server.ok(), "accept");
    // The bare benchmarks wait in the system; a transport does not care.
    for (const Fd* socket : {&*client, &*server}) {
      require(::fcntl(socket->get(), F_SETFL, 0) == 0, "fcntl");
    }
    sockets.first.push_back(std::move(*client));
    sockets.second.push_back(std::move(*server));
  }
  return sockets;
}

std::pair<Fd, Fd> tcp_sockets() {
  auto [client, server] = tcp_sockets(1);
  return {std::move(client[0]), std::move(server[0])};
}

struct Ends {
  std::unique_ptr<transport::Transport> client, server;
};

// What a network gives to one connection, where it gives each its part: 1 Gb/s.
constexpr unsigned kPacedBytesPerSecond = 125'000'000;

void pace(const std::vector<Fd>& sockets) {
  for (const Fd& socket : sockets) {
    require(::setsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &kPacedBytesPerSecond,
                         sizeof kPacedBytesPerSecond) == 0,
            "SO_MAX_PACING_RATE");
  }
}

Ends tcp_ends(std::chrono::microseconds spin, size_t connections = 1, bool paced = false) {
  auto [client_sockets, server_sockets] = tcp_sockets(connections);
  if (paced) {
    pace(client_sockets);
    pace(server_sockets);
  }
  transport::StreamOptions options;
  options.spin = spin;
  auto client = transport::from_fds(std::move(client_sockets), options);
  auto server = transport::from_fds(std::move(server_sockets), options);
  require(client.ok() && server.ok(), "from_fds");
  return {std::move(*client), std::move(*server)};
}

Ends shm_ends(std::chrono::microseconds spin) {
  int sockets[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  Fd client_socket(sockets[0]), server_socket(sockets[1]);
  transport::ShmOptions options;
  options.spin = spin;
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  Ends ends;
  std::thread joiner([&] {
    auto client = transport::shm_join(client_socket, options, deadline);
    require(client.ok(), "join");
    ends.client = std::move(*client);
  });
  auto server = transport::shm_serve(server_socket, {}, options, deadline);
  joiner.join();
  require(server.ok(), "serve");
  ends.server = std::move(*server);
  return ends;
}

Ends shm() { return shm_ends({}); }
Ends shm_spinning() { return shm_ends(std::chrono::microseconds(1000)); }

Ends unix_ends(std::chrono::microseconds spin) {
  int sockets[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  transport::StreamOptions options;
  options.spin = spin;
  auto client = transport::from_fd(Fd(sockets[0]), options);
  auto server = transport::from_fd(Fd(sockets[1]), options);
  require(client.ok() && server.ok(), "from_fd");
  return {std::move(*client), std::move(*server)};
}

Ends unix_sleeping() { return unix_ends({}); }

Ends tcp() { return tcp_ends({}); }
Ends tcp_by_4() { return tcp_ends({}, 4); }
Ends tcp_by_8() { return tcp_ends({}, 8); }
Ends paced_by_1() { return tcp_ends({}, 1, true); }
Ends paced_by_2() { return tcp_ends({}, 2, true); }
Ends paced_by_4() { return tcp_ends({}, 4, true); }
Ends paced_by_8() { return tcp_ends({}, 8, true); }
Ends tcp_spinning() { return tcp_ends(std::chrono::microseconds(50)); }

Ends loopback() {
  auto [client, server] = transport::make_loopback_pair();
  return {std::move(client), std::move(server)};
}

// Answers kNull, swallows kAsync and bulk, answers kRead with bulk, works for a microsecond on
// kWork.
// Aligned, so that it shares no cache line with the client's end: elsewhere the two are in
// different processes.
class alignas(64) Server final : public transport::FrameHandler {
 public:
  explicit Server(std::unique_ptr<transport::Transport> transport)
      : transport_(std::move(transport)),
        responder_(*transport_),
        memory_(64 << 20),
        thread_([this] { run(); }) {}
  ~Server() override {
    transport_->close();
    thread_.join();
  }
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    return std::span(memory_).first(header.bulk_bytes);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte>) override {
    if (header.opcode == kWork) {
      const auto end = Clock::now() + std::chrono::microseconds(1);
      while (Clock::now() < end) {
      }
    }
    if (header.opcode != kRead) return responder_.reply(header, 0);
    uint64_t bytes = 0;
    require(body.size() >= 16, "request");
    std::memcpy(&bytes, body.data() + 8, sizeof bytes);
    rpc::Responder::Frame frame(responder_, header, 0);
    const Bytes piece = Bytes(memory_).first(bytes);
    return frame.send(0, std::span(&piece, 1));
  }

 private:
  void run() {
    while (transport_->receive(*this, kNoDeadline).ok() && responder_.flush().ok()) {
    }
  }
  std::unique_ptr<transport::Transport> transport_;
  rpc::Responder responder_;
  std::vector<std::byte> memory_;
  std::thread thread_;
};

class Sink final : public rpc::NoticeSink {
 public:
  Status on_notice(const wire::FrameHeader&, Bytes, Bytes) override { return Status(); }
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t) override {}
  void on_lost(const Status&) override {}
};

struct Session {
  explicit Session(Ends ends)
      : server(std::move(ends.server)), channel(std::move(ends.client), sink, {}) {}
  Sink sink;
  Server server;
  rpc::Channel channel;
};

void null_call(benchmark::State& state, Ends (*connect)()) {
  Session session(connect());
  for (auto _ : state) {
    rpc::Reply reply;
    rpc::Channel::Call call(session.channel, kNull, 0, 0);
    require(call.call(reply).ok(), "call");
  }
}

void async_call(benchmark::State& state, Ends (*connect)()) {
  Session session(connect());
  for (auto _ : state) {
    rpc::Channel::Call call(session.channel, kAsync, 0, 128);
    call.init<capnp::AnyPointer>().initAsAnyStruct(12, 0);  // about the size of a small launch
    require(call.send().ok(), "send");
  }
  require(session.channel.ping(Clock::now() + std::chrono::seconds(60)).ok(), "ping");
  state.SetItemsProcessed(state.iterations());
}

// What a caller's thread pays for an async call while the server is busy with those before it, as
// with launches. Bursts as long as fit into the ring, or the server's rate would be measured.
void async_burst(benchmark::State& state, Ends (*connect)()) {
  Session session(connect());
  constexpr int kBurst = 1000;
  double seconds = 0;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBurst; ++i) {
      rpc::Channel::Call call(session.channel, kWork, 0, 128);
      call.init<capnp::AnyPointer>().initAsAnyStruct(12, 0);
      require(call.send().ok(), "send");
    }
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    require(session.channel.ping(Clock::now() + std::chrono::seconds(60)).ok(), "ping");
  }
  state.counters["ns_per_call"] = 1e9 * seconds / kBurst / static_cast<double>(state.iterations());
}

void bulk_to_server(benchmark::State& state, Ends (*connect)()) {
  Session session(connect());
  const std::vector<std::byte> data(static_cast<size_t>(state.range(0)), std::byte{1});
  const Bytes piece(data);
  for (auto _ : state) {
    rpc::Channel::Call call(session.channel, kAsync, 0, 0);
    require(call.send(std::span(&piece, 1)).ok(), "send");
  }
  require(session.channel.ping(Clock::now() + std::chrono::seconds(60)).ok(), "ping");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void bulk_from_server(benchmark::State& state, Ends (*connect)()) {
  Session session(connect());
  std::vector<std::byte> room(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    rpc::Reply reply;
    rpc::Channel::Call call(session.channel, kRead, 0, 16);
    auto words = call.init<capnp::AnyPointer>().initAsAnyStruct(1, 0).getDataSection();
    const uint64_t bytes = room.size();
    std::memcpy(words.begin(), &bytes, sizeof bytes);
    require(call.call(reply, {}, room).ok() && reply.bulk_bytes == bytes, "read");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// --- emulated links: what was asked for, and what it is (the ratio should be 1) ---

Ends behind_link(Ends ends, const std::string& link) {
  auto settings = transport::parse_link(link);
  require(settings.ok(), "parse_link");
  ends.client = transport::emulate_link(std::move(ends.client), *settings);
  return ends;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void emulated_rtt(benchmark::State& state, Ends (*connect)()) {
  const auto microseconds = state.range(0);
  Session session(behind_link(connect(), "rtt=" + std::to_string(microseconds) + "us"));
  std::vector<double> times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    rpc::Reply reply;
    rpc::Channel::Call call(session.channel, kNull, 0, 0);
    require(call.call(reply).ok(), "call");
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  state.counters["median_to_setting"] =
      times[times.size() / 2] / (static_cast<double>(microseconds) * 1e-6);
}

void emulated_bandwidth(benchmark::State& state, Ends (*connect)()) {
  constexpr size_t kBytes = 1 << 20;
  const auto gigabits = state.range(0);
  Session session(behind_link(connect(), "bandwidth=" + std::to_string(gigabits) + "Gbps"));
  const std::vector<std::byte> data(kBytes, std::byte{1});
  const Bytes piece(data);
  const auto begin = Clock::now();
  for (auto _ : state) {
    rpc::Channel::Call call(session.channel, kAsync, 0, 0);
    require(call.send(std::span(&piece, 1)).ok(), "send");
  }
  require(session.channel.ping(Clock::now() + std::chrono::seconds(60)).ok(), "ping");
  const double bits =
      8.0 * static_cast<double>(state.iterations()) * static_cast<double>(kBytes + kFrameBytes);
  state.counters["rate_to_setting"] =
      bits / seconds_since(begin) / (static_cast<double>(gigabits) * 1e9);
}

// --- the same with bare sockets ---

void bare_ping_pong(benchmark::State& state) {
  auto [client, server] = tcp_sockets();
  std::thread echo([descriptor = server.get()] {
    std::byte frame[kFrameBytes];
    while (::recv(descriptor, frame, sizeof frame, MSG_WAITALL) == sizeof frame) {
      if (::send(descriptor, frame, sizeof frame, MSG_NOSIGNAL) != sizeof frame) return;
    }
  });
  std::byte frame[kFrameBytes] = {};
  for (auto _ : state) {
    require(::send(client.get(), frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame, "send");
    require(::recv(client.get(), frame, sizeof frame, MSG_WAITALL) == sizeof frame, "recv");
  }
  ::shutdown(client.get(), SHUT_RDWR);
  echo.join();
}

// The rings of the shared-memory transport by themselves: what the cache lines cost.
void bare_ring(benchmark::State& state) {
  auto segment = transport::ShmSegment::create({1 << 16, 1 << 16});
  require(segment.ok(), "segment");
  std::atomic<bool> stop{false};
  const auto take = [&stop](transport::RingConsumer& ring, std::span<std::byte> frame) {
    while (!ring.anything_new()) {
      if (stop.load(std::memory_order_relaxed)) return false;
      __builtin_ia32_pause();
    }
    require(ring.refresh() && ring.available() == frame.size(), "take");
    ring.read(frame);
    (void)ring.publish();
    return true;
  };
  const auto put = [](transport::RingProducer& ring, Bytes frame) {
    require(ring.refresh() && ring.write(frame) == frame.size(), "put");
    ring.publish();
  };
  std::thread echo([&] {
    transport::RingConsumer in(segment->to_server());
    transport::RingProducer out(segment->to_client());
    std::byte frame[kFrameBytes];
    while (take(in, frame)) put(out, frame);
  });
  transport::RingProducer out(segment->to_server());
  transport::RingConsumer in(segment->to_client());
  std::byte frame[kFrameBytes] = {};
  for (auto _ : state) {
    put(out, frame);
    require(take(in, frame), "take");
  }
  stop = true;
  echo.join();
}

// Frames through a transport without channel and responder.
void transport_ping_pong(benchmark::State& state, Ends (*connect)()) {
  struct Echo final : transport::FrameHandler {
    explicit Echo(transport::Transport& end) : transport(end) {}
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&, Bytes) override {
      return std::span<std::byte>();
    }
    Status on_frame(const wire::FrameHeader& header, Bytes, std::span<std::byte>) override {
      return answer ? send(header) : Status();
    }
    Status send(const wire::FrameHeader& header) {
      FARGPU_ASSIGN_OR_RETURN(auto slot, transport.reserve(sizeof header, kNoDeadline));
      std::memcpy(slot.data(), &header, sizeof header);
      FARGPU_RETURN_IF_ERROR(transport.commit(sizeof header, {}, kNoDeadline));
      return transport.flush(kNoDeadline);
    }
    transport::Transport& transport;
    bool answer = false;
  };
  Ends ends = connect();
  std::thread echo([&] {
    Echo handler(*ends.server);
    handler.answer = true;
    while (ends.server->receive(handler, kNoDeadline).ok()) {
    }
  });
  Echo handler(*ends.client);
  for (auto _ : state) {
    require(handler.send({}).ok(), "send");
    auto received = ends.client->receive(handler, kNoDeadline);
    require(received.ok() && *received == 1, "receive");
  }
  ends.client->close();
  echo.join();
}

void bare_copy(benchmark::State& state) {
  auto [client, server] = tcp_sockets();
  const auto bytes = static_cast<size_t>(state.range(0));
  std::thread reader([descriptor = server.get(), bytes] {
    std::vector<std::byte> room(bytes);
    while (::recv(descriptor, room.data(), room.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(bytes)) {
      if (::send(descriptor, room.data(), 1, MSG_NOSIGNAL) != 1) return;
    }
  });
  const std::vector<std::byte> data(bytes, std::byte{1});
  std::byte done;
  // Two transfers under way, so that the acknowledgement costs nothing.
  size_t under_way = 0;
  for (auto _ : state) {
    for (size_t sent = 0; sent < bytes;) {
      const ssize_t now = ::send(client.get(), data.data() + sent, bytes - sent, MSG_NOSIGNAL);
      require(now > 0, "send");
      sent += static_cast<size_t>(now);
    }
    if (++under_way == 2) {
      require(::recv(client.get(), &done, 1, 0) == 1, "recv");
      --under_way;
    }
  }
  ::shutdown(client.get(), SHUT_RDWR);
  reader.join();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(bare_ping_pong)->UseRealTime();
BENCHMARK(bare_ring)->UseRealTime();
BENCHMARK_CAPTURE(transport_ping_pong, shm_spinning, shm_spinning)->UseRealTime();
BENCHMARK_CAPTURE(null_call, tcp, tcp)->UseRealTime();
BENCHMARK_CAPTURE(null_call, tcp_spinning, tcp_spinning)->UseRealTime();
BENCHMARK_CAPTURE(null_call, unix, unix_sleeping)->UseRealTime();
BENCHMARK_CAPTURE(null_call, shm, shm)->UseRealTime();
BENCHMARK_CAPTURE(null_call, shm_spinning, shm_spinning)->UseRealTime();
BENCHMARK_CAPTURE(null_call, loopback, loopback)->UseRealTime();
BENCHMARK_CAPTURE(async_call, tcp, tcp)->UseRealTime();
BENCHMARK_CAPTURE(async_call, unix, unix_sleeping)->UseRealTime();
BENCHMARK_CAPTURE(async_call, shm, shm)->UseRealTime();
BENCHMARK_CAPTURE(async_call, shm_spinning, shm_spinning)->UseRealTime();
BENCHMARK_CAPTURE(async_call, loopback, loopback)->UseRealTime();
BENCHMARK_CAPTURE(async_burst, tcp, tcp)->UseRealTime();
BENCHMARK_CAPTURE(async_burst, shm, shm)->UseRealTime();
BENCHMARK_CAPTURE(async_burst, shm_spinning, shm_spinning)->UseRealTime();
BENCHMARK_CAPTURE(emulated_rtt, shm_spinning, shm_spinning)
    ->Arg(20)
    ->Arg(200)
    ->Arg(2000)
    ->UseRealTime();
BENCHMARK_CAPTURE(emulated_rtt, tcp, tcp)->Arg(2000)->UseRealTime();
BENCHMARK_CAPTURE(emulated_bandwidth, shm_spinning, shm_spinning)
    ->Arg(1)
    ->Arg(10)
    ->Arg(25)
    ->UseRealTime();
BENCHMARK_CAPTURE(emulated_bandwidth, tcp, tcp)->Arg(1)->UseRealTime();
BENCHMARK(bare_copy)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, tcp, tcp)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, tcp_by_4, tcp_by_4)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, tcp_by_8, tcp_by_8)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, paced_by_1, paced_by_1)->Arg(4 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, paced_by_2, paced_by_2)->Arg(4 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, paced_by_4, paced_by_4)->Arg(4 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, paced_by_8, paced_by_8)->Arg(4 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, unix, unix_sleeping)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, shm, shm)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_to_server, shm_spinning, shm_spinning)
    ->Arg(1 << 20)
    ->Arg(32 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, tcp, tcp)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, tcp_by_4, tcp_by_4)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, tcp_by_8, tcp_by_8)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, unix, unix_sleeping)
    ->Arg(1 << 20)
    ->Arg(32 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, shm, shm)->Arg(1 << 20)->Arg(32 << 20)->UseRealTime();
BENCHMARK_CAPTURE(bulk_from_server, shm_spinning, shm_spinning)
    ->Arg(1 << 20)
    ->Arg(32 << 20)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
