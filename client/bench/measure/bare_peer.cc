#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "client/bench/measure/bare.h"
#include "client/bench/measure/bare_io.h"
#include "client/bench/measure/driver.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::bench {

namespace {

constexpr size_t kBuffer = 1 << 20, kMostConnections = 512;

void converse(int socket) {
  Setup setup;
  char first[sizeof setup];
  if (!receive_all(socket, first)) return;
  std::memcpy(&setup, first, sizeof setup);
  if (setup.magic != Setup::kMagic || setup.there == 0 || setup.there > Setup::kMost ||
      setup.back == 0 || setup.back > Setup::kMost)
    return;
  std::vector<char> out(std::min<uint64_t>(setup.back, kBuffer), 1);
  std::vector<char> in(std::min<uint64_t>(setup.there, kBuffer));
  while (receive_total(socket, setup.there, in) && send_total(socket, setup.back, out)) {
  }
}

}  // namespace

bool bare_ends_spin() {
  static const bool kSpin = std::thread::hardware_concurrency() >= 8;
  return kSpin;
}

struct Peer::Impl {
  struct Connection {
    Fd socket;
    std::thread thread;
    std::atomic<bool> over{false};
  };
  explicit Impl(transport::TcpListener from) : listener(std::move(from)) {
    accepting = std::thread([this] {
      for (;;) {
        auto socket = listener.accept(transport::kNoDeadline);
        if (socket.ok()) {
          add(std::move(*socket));
        } else if (socket.status().code() == StatusCode::kLost) {
          return;
        }
      }
    });
  }
  ~Impl() {
    listener.stop();
    accepting.join();
    for (auto& connection : connections) end(*connection);
  }
  static void end(Connection& connection) {
    ::shutdown(connection.socket.get(), SHUT_RDWR);
    connection.thread.join();
  }
  // One more than there may be is closed at once.
  void add(Fd socket) {
    const std::lock_guard guard(lock);
    std::erase_if(connections, [](auto& connection) {
      if (!connection->over.load()) return false;
      end(*connection);
      return true;
    });
    if (connections.size() >= kMostConnections) return;
    auto& made = *connections.emplace_back(std::make_unique<Connection>());
    made.socket = std::move(socket);
    made.thread = std::thread([&made] {
      converse(made.socket.get());
      ::shutdown(made.socket.get(), SHUT_RDWR);
      made.over.store(true);
    });
  }

  transport::TcpListener listener;
  std::mutex lock;
  std::vector<std::unique_ptr<Connection>> connections;
  std::thread accepting;
};

Peer::Peer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Peer::Peer(Peer&&) noexcept = default;
Peer::~Peer() = default;

Result<Peer> Peer::listen(const Endpoint& endpoint) {
  FARGPU_ASSIGN_OR_RETURN(transport::TcpListener listener, transport::TcpListener::open(endpoint));
  return Peer(std::make_unique<Impl>(std::move(listener)));
}

uint16_t Peer::port() const { return impl_->listener.port(); }

Fd Peer::connect_here() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Failed(system_error("socketpair", errno).message());
  impl_->add(Fd(ends[0]));
  return Fd(ends[1]);
}

void Peer::serve() {
  impl_->accepting.join();
  std::abort();  // the listener ends with its owner only
}

}  // namespace fargpu::bench
