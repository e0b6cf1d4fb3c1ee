#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "client/bench/measure/bare.h"
#include "client/bench/measure/bare_io.h"
#include "client/bench/measure/driver.h"
#include "common/transport/spin.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::bench {

namespace {

constexpr size_t kBuffer = 1 << 20, kMostConnections = 512;
constexpr auto kPause = std::chrono::milliseconds(50);

void converse(int socket) try {
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
} catch (const std::bad_alloc&) {  // this conversation ends, the others go on
}

}  // namespace

bool bare_ends_spin() {
  static const bool kSpin = transport::usual_spin(transport::SpinningEnd::kClient).count() > 0;
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
        if (!socket.ok() && socket.status().code() == StatusCode::kLost) return;
        // Out of descriptors or threads: later there may be some.
        if (!socket.ok() || !added(std::move(*socket))) std::this_thread::sleep_for(kPause);
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
  bool added(Fd socket) try {
    add(std::move(socket));
    return true;
  } catch (const std::exception&) {
    return false;
  }
  // One more than there may be is closed at once. Throws when the process may have no more threads
  // or memory.
  void add(Fd socket) {
    const std::lock_guard guard(lock);
    std::erase_if(connections, [](auto& connection) {
      if (!connection->over.load()) return false;
      end(*connection);
      return true;
    });
    if (connections.size() >= kMostConnections) return;
    auto own = std::make_unique<Connection>();
    Connection& made = *own;
    made.socket = std::move(socket);
    connections.reserve(connections.size() + 1);
    made.thread = std::thread([&made] {
      converse(made.socket.get());
      ::shutdown(made.socket.get(), SHUT_RDWR);
      made.over.store(true);
    });
    connections.push_back(std::move(own));
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
