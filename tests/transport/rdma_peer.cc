// One end of an rdma session in a process of its own: for tests that kill it, and for two machines.
//   rdma_peer serve ADDRESS PORT       waits for one client; port 0: any, printed as "port N"
//   rdma_peer traffic ADDRESS PORT     frames there and back, remote memory; everything compared
//   rdma_peer until-lost ADDRESS PORT  round trips until the session is lost; says how long after
//                                      the last good one
//   rdma_peer limited ADDRESS 0        both ends; fails at the limit of locked memory, as it should
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "common/base/check.h"
#include "common/transport/remote_memory.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/frames.h"
#include "tests/transport/rdma_pairs.h"

namespace fargpu::test {
namespace {

using transport::Clock;
using transport::kNoDeadline;
constexpr uint16_t kEcho = 100, kFlood = 101;
constexpr size_t kMemoryBytes = 3 << 20;

void require(const Status& status, const char* what) {
  if (status.ok()) return;
  std::printf("%s failed: %s\n", what, status.message().c_str());
  std::exit(1);
}

Status send(transport::Transport& end, wire::FrameHeader header, Bytes body, Bytes bulk) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.bulk_bytes = bulk.size();
  auto slot = end.reserve(sizeof header + body.size(), kNoDeadline);
  if (!slot.ok()) return slot.status();
  std::memcpy(slot->data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(slot->data() + sizeof header, body.data(), body.size());
  FARGPU_RETURN_IF_ERROR(end.commit(sizeof header + body.size(), std::span(&bulk, 1), kNoDeadline));
  return end.flush(kNoDeadline);
}

class Serving final : public transport::FrameHandler {
 public:
  explicit Serving(transport::Transport& end) : end_(end) {}
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    bulk_.resize(header.bulk_bytes);
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override {
    if (header.opcode != kFlood) return send(end_, header, body, bulk);
    const std::vector<std::byte> much(1 << 20, std::byte{7});
    for (;;) FARGPU_RETURN_IF_ERROR(send(end_, header, {}, much));
  }

 private:
  transport::Transport& end_;
  std::vector<std::byte> bulk_;
};

class Answers final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    bulk.resize(header.bulk_bytes);
    return std::span(bulk);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes received, std::span<std::byte>) override {
    ++frames;
    body.assign(received.begin(), received.end());
    if (header.bulk_bytes == 0) bulk.clear();
    return Status();
  }
  Status wait(transport::Transport& end, int count) {
    while (frames < count) {
      auto received = end.receive(*this, kNoDeadline);
      if (!received.ok()) return received.status();
    }
    return Status();
  }
  int frames = 0;
  std::vector<std::byte> body, bulk;
};

int serve(const std::string& host, uint16_t port) {
  auto listener = transport::TcpListener::open({host, port});
  require(listener.status(), "listening");
  std::printf("port %u\n", listener->port());
  std::fflush(stdout);
  auto socket = listener->accept(Clock::now() + std::chrono::seconds(60));
  require(socket.status(), "accepting");
  auto end = rdma_serve_over(std::move(*socket), {});
  require(end.status(), "the rdma connection");
  std::printf("serving over %s\n", (*end)->describe().c_str());

  std::vector<std::byte> memory = pattern(kMemoryBytes, 5);
  auto registered =
      (*end)->remote_memory()->register_memory(memory, transport::RemoteAccess::kReadWrite);
  require(registered.status(), "registering");
  const transport::RemoteKey key = (*registered)->key();
  require(send(**end, {}, {}, std::as_bytes(std::span(&key, 1))), "sending the key");
  Serving handler(**end);
  for (;;) {
    auto received = (*end)->receive(handler, kNoDeadline);
    if (received.ok()) continue;
    std::printf("server: %s\n", received.status().message().c_str());
    return 0;
  }
}

struct Session {
  std::unique_ptr<transport::Transport> end;
  Answers answers;
  transport::RemoteKey key;
};

Session connect(const std::string& host, uint16_t port) {
  Result<Fd> socket = Status(StatusCode::kLost, "");
  for (const auto give_up = Clock::now() + std::chrono::seconds(60);
       !socket.ok() && Clock::now() < give_up;) {
    socket = transport::tcp_connect({host, port}, Clock::now() + std::chrono::seconds(2));
  }
  require(socket.status(), "connecting");
  Session session;
  auto end = rdma_connect_over(std::move(*socket), {});
  require(end.status(), "the rdma connection");
  session.end = std::move(*end);
  std::printf("connected over %s\n", session.end->describe().c_str());
  require(session.answers.wait(*session.end, 1), "the key");
  FARGPU_CHECK(session.answers.bulk.size() == sizeof session.key);
  std::memcpy(&session.key, session.answers.bulk.data(), sizeof session.key);
  return session;
}

int traffic(Session session) {
  wire::FrameHeader header;
  header.opcode = kEcho;
  uint32_t seed = 0;
  for (size_t body : {0, 8, 400, 4096, 300'000}) {
    for (size_t bulk : {0, 1, 100, 5000, 70'000, 1'000'003}) {
      const auto sent_body = pattern(body, ++seed), sent_bulk = pattern(bulk, ~seed);
      require(send(*session.end, header, sent_body, sent_bulk), "sending");
      require(session.answers.wait(*session.end, session.answers.frames + 1), "receiving");
      FARGPU_CHECK(same(session.answers.body, sent_body) && same(session.answers.bulk, sent_bulk));
    }
  }
  auto& memory = *session.end->remote_memory();
  std::vector<std::byte> ours(kMemoryBytes);
  auto registered = memory.register_memory(ours, transport::RemoteAccess::kNone);
  require(registered.status(), "registering");
  const auto transfer = [&](Result<uint64_t> ticket, const char* what) {
    require(ticket.status(), what);
    require(memory.wait(*ticket, kNoDeadline), what);
  };
  transfer(memory.read(session.key, 0, **registered, ours), "reading");
  FARGPU_CHECK(same(ours, pattern(kMemoryBytes, 5)));
  const auto fresh = pattern(kMemoryBytes, 6);
  std::copy(fresh.begin(), fresh.end(), ours.begin());
  transfer(memory.write(**registered, ours, session.key, 0), "writing");
  std::fill(ours.begin(), ours.end(), std::byte{0});
  transfer(memory.read(session.key, 0, **registered, ours), "reading back");
  FARGPU_CHECK(same(ours, pattern(kMemoryBytes, 6)));
  std::printf("traffic: all as it should be\n");
  return 0;
}

int until_lost(Session session) {
  wire::FrameHeader header;
  header.opcode = kEcho;
  auto last_good = Clock::now();
  Status status;
  int rounds = 0;
  while (status.ok()) {
    status = send(*session.end, header, {}, {});
    if (status.ok()) status = session.answers.wait(*session.end, session.answers.frames + 1);
    if (status.ok()) last_good = Clock::now(), ++rounds;
    if (rounds == 1) std::printf("running\n"), std::fflush(stdout);
  }
  const std::chrono::duration<double> silence = Clock::now() - last_good;
  std::printf("after %d rounds, %.1f s after the last one: %s\n", rounds, silence.count(),
              status.message().c_str());
  return status.code() == StatusCode::kLost && rounds > 0 && silence.count() < 7 ? 0 : 1;
}

int limited(const std::string& host) {
  // Before rdma_cm is opened: the kernel serves no process that has changed its rights since.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[2]{};
  FARGPU_CHECK(::syscall(SYS_capget, &header, rights) == 0);
  for (uint32_t* set : {&rights[0].effective, &rights[0].permitted, &rights[0].inheritable})
    *set &= ~(1u << CAP_IPC_LOCK);
  FARGPU_CHECK(::syscall(SYS_capset, &header, rights) == 0);
  const rlimit low{1 << 20, 1 << 20};
  FARGPU_CHECK(::setrlimit(RLIMIT_MEMLOCK, &low) == 0);

  auto address = transport::SocketAddress::parse(host, 0);
  require(address.status(), "the address");
  // Only the server's ring is too large for the limit; the client learns why it was refused.
  transport::RdmaOptions small;
  small.ring_bytes = small.staging_bytes = 64 << 10;
  auto acceptor = transport::RdmaAcceptor::listen(*address, {});
  require(acceptor.status(), "listening");
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  Status client_status;
  std::thread client([&] {
    Fd none;
    client_status =
        transport::rdma_connect(*address, (*acceptor)->offer(), small, none, deadline).status();
  });
  Fd none;
  const Status status = (*acceptor)->accept(none, deadline).status();
  client.join();
  std::printf("server: %s\nclient: %s\n", status.message().c_str(),
              client_status.message().c_str());
  const bool named = status.message().find("ulimit -l") != std::string::npos &&
                     status.message().find("1024 KiB") != std::string::npos;
  return status.code() == StatusCode::kNoCapacity && named &&
                 client_status.code() == StatusCode::kRefused
             ? 0
             : 1;
}

}  // namespace
}  // namespace fargpu::test

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[1], host = argv[2];
  const auto port = static_cast<uint16_t>(std::atoi(argv[3]));
  if (what == "limited") return fargpu::test::limited(host);
  if (what == "serve") return fargpu::test::serve(host, port);
  if (what == "traffic") return fargpu::test::traffic(fargpu::test::connect(host, port));
  if (what == "until-lost") return fargpu::test::until_lost(fargpu::test::connect(host, port));
  return 2;
}
