#include "server/daemon/listeners.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/bootstrap/connect.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// So many connections are accepted before those that are there already get a turn.
constexpr int kBatch = 64;

// The socket file of a dead daemon is replaced; one with a listening process is not.
Result<Fd> listen_unix(const std::string& path, mode_t mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("listen {}: the path is longer than {} bytes", path,
                              sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  struct stat about {};
  if (::lstat(path.c_str(), &about) == 0) {
    if (!S_ISSOCK(about.st_mode)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("listen {}: there is a file that is not a socket", path));
    }
    Fd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(other.get(), name, sizeof address) == 0) {
      return Status(StatusCode::kSystem,
                    fmt::format("listen {}: another process listens there", path));
    }
    ::unlink(path.c_str());
  }
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error("socket", errno);
  // Who may write to the file may connect.
  const mode_t before = ::umask(0777 & ~mode);
  const int bound = ::bind(socket.get(), name, sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound != 0) return system_error("listen " + path, error);
  if (::listen(socket.get(), SOMAXCONN) != 0) return system_error("listen " + path, errno);
  return socket;
}

}  // namespace

struct Listeners::Listener {
  explicit Listener(asio::io_context& loop) : readable(loop), pause(loop) {}
  std::optional<transport::TcpListener> tcp;
  Fd unix_socket;
  std::string path;
  asio::posix::stream_descriptor readable;  // a duplicate: only waited on
  asio::steady_timer pause;

  Result<Fd> accept() {
    if (tcp) return tcp->accept(transport::Clock::now());
    Fd socket(::accept4(unix_socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) return socket;
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
      return Status(StatusCode::kTimeout, "nobody there");
    return transport::accept_failed(errno);
  }
};

Listeners::Listeners(asio::io_context& loop, OnConnection on_connection,
                     std::function<bool()> make_room)
    : loop_(loop), on_connection_(std::move(on_connection)), make_room_(std::move(make_room)) {}

Listeners::~Listeners() { stop(); }

Status Listeners::add(const std::string& where, mode_t socket_mode) {
  auto listener = std::make_shared<Listener>(loop_);
  int descriptor = -1;
  if (const auto path = bootstrap::socket_path(where)) {
    std::error_code error;
    listener->path = std::filesystem::absolute(*path, error).lexically_normal();
    if (error) return system_error("listen " + where, error.value());
    FARGPU_ASSIGN_OR_RETURN(listener->unix_socket, listen_unix(listener->path, socket_mode));
    descriptor = listener->unix_socket.get();
  } else {
    FARGPU_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(where, 0));
    FARGPU_ASSIGN_OR_RETURN(listener->tcp, transport::TcpListener::open(endpoint));
    descriptor = listener->tcp->descriptor();
    listener->path.clear();
  }
  const int duplicate = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) return system_error("listen " + where, errno);
  listener->readable.assign(duplicate);
  if (listener->tcp) {
    log::info("event=listening address={} port={}", where, listener->tcp->port());
  } else {
    log::info("event=listening path={}", where);
  }
  listeners_.push_back(listener);
  wait(listener);
  return Status();
}

void Listeners::wait(const std::shared_ptr<Listener>& listener) {
  listener->readable.async_wait(
      asio::posix::stream_descriptor::wait_read, [this, listener](const error_code& error) {
        if (error) return;
        if (const Status accepted = accept_some(*listener); !accepted.ok()) {
          // Out of descriptors or memory: the connection stays in the queue; come back when
          // something may have been freed.
          log::error("event=accept-failed why=\"{}\"", accepted.message());
          listener->pause.expires_after(std::chrono::milliseconds(200));
          listener->pause.async_wait([this, listener](const error_code& cancelled) {
            if (!cancelled) wait(listener);
          });
          return;
        }
        wait(listener);
      });
}

Status Listeners::accept_some(Listener& listener) {
  for (int i = 0; i < kBatch; ++i) {
    auto socket = listener.accept();
    if (socket.ok()) {
      std::string peer = listener.tcp ? transport::peer_name(socket->get()) : "unix";
      on_connection_(std::move(*socket), std::move(peer));
    } else if (socket.status().code() == StatusCode::kTimeout) {
      break;
    } else if (socket.status().code() != StatusCode::kNoCapacity || !make_room_()) {
      return socket.status();
    }
  }
  return Status();
}

Status Listeners::write_ports(const std::string& path) const {
  const std::string part = path + ".part";
  std::ofstream file(part);
  for (const auto& listener : listeners_) {
    if (listener->tcp) file << listener->tcp->port() << "\n";
  }
  file.close();
  if (!file || ::rename(part.c_str(), path.c_str()) != 0)
    return {StatusCode::kInvalidArgument, fmt::format("cannot write the port file {}", path)};
  return Status();
}

void Listeners::stop() {
  for (const auto& listener : listeners_) {
    error_code ignored;
    listener->readable.close(ignored);
    listener->pause.cancel();
    if (!listener->path.empty()) ::unlink(listener->path.c_str());
  }
  listeners_.clear();
}

}  // namespace fargpu::server
