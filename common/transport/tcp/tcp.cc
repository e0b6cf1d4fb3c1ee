#include "common/transport/tcp/tcp.h"

#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <optional>

#include "common/transport/poll.h"
#include "common/transport/tcp/tcp_options.h"

namespace fargpu::transport {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The system cuts it to net.core.somaxconn.
constexpr int kBacklog = SOMAXCONN;

// Options that Asio has no name for.
using KeepIdle = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
using KeepInterval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
using KeepCount = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
using UserTimeout = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>;

template <typename Option>
error_code set(int descriptor, const Option& option) {
  const tcp protocol = tcp::v4();  // only asked for by options that depend on it; ours do not
  return ::setsockopt(descriptor, option.level(protocol), option.name(protocol),
                      option.data(protocol), static_cast<socklen_t>(option.size(protocol))) == 0
             ? error_code()
             : error_code(errno, boost::system::system_category());
}

}  // namespace

Status set_tcp_options(int descriptor, std::chrono::milliseconds user_timeout) {
  for (const error_code& error :
       {set(descriptor, tcp::no_delay(true)), set(descriptor, asio::socket_base::keep_alive(true)),
        set(descriptor, KeepIdle(10)), set(descriptor, KeepInterval(5)),
        set(descriptor, KeepCount(4)),
        set(descriptor, UserTimeout(static_cast<int>(user_timeout.count())))}) {
    if (error) return Status(StatusCode::kSystem, "cannot set a TCP option: " + error.message());
  }
  return Status();
}

Status accept_failed(int error_number) {
  const Status failed = system_error("cannot accept a connection", error_number);
  const bool no_descriptor = error_number == EMFILE || error_number == ENFILE;
  return no_descriptor ? Status(StatusCode::kNoCapacity, failed.message()) : failed;
}

struct TcpListener::Impl {
  explicit Impl(EventFd stop_event) : stopper(std::move(stop_event)) {}
  asio::io_context context;
  tcp::acceptor acceptor{context};
  EventFd stopper;  // signalled once, never drained
};

TcpListener::TcpListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpListener::TcpListener(TcpListener&&) noexcept = default;
TcpListener& TcpListener::operator=(TcpListener&&) noexcept = default;
TcpListener::~TcpListener() = default;

Result<TcpListener> TcpListener::open(const Endpoint& endpoint) try {
  FARGPU_ASSIGN_OR_RETURN(EventFd stopper, EventFd::create());
  auto impl = std::make_unique<Impl>(std::move(stopper));
  const bool everywhere = endpoint.host == "*";
  tcp::endpoint address(tcp::v6(), endpoint.port);
  if (!everywhere) {
    tcp::resolver resolver(impl->context);
    address = *resolver.resolve(endpoint.host, std::to_string(endpoint.port),
                                tcp::resolver::passive | tcp::resolver::numeric_service);
  }
  error_code error;
  impl->acceptor.open(address.protocol(), error);
  if (error && everywhere) {  // a host without IPv6
    address = tcp::endpoint(tcp::v4(), endpoint.port);
    error.clear();
    impl->acceptor.open(address.protocol());
  }
  if (!error) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && everywhere && address.protocol() == tcp::v6()) {
    impl->acceptor.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) impl->acceptor.bind(address, error);
  if (!error) impl->acceptor.listen(kBacklog, error);
  if (!error) impl->acceptor.non_blocking(true, error);
  if (error) {
    return Status(StatusCode::kSystem,
                  fmt::format("cannot listen on {}: {}", endpoint.to_string(), error.message()));
  }
  return TcpListener(std::move(impl));
} catch (const std::exception& error) {
  return Status(StatusCode::kSystem,
                fmt::format("cannot listen on {}: {}", endpoint.to_string(), error.what()));
}

Result<Fd> TcpListener::accept(Deadline deadline) {
  for (;;) {
    pollfd descriptors[2] = {{descriptor(), POLLIN, 0}, {impl_->stopper.get(), POLLIN, 0}};
    FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(descriptors, deadline));
    if (ready == 0) return Status(StatusCode::kTimeout, "no connection in time");
    if (descriptors[1].revents != 0) return Status(StatusCode::kLost, "the listener was stopped");
    Fd socket(::accept4(descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) {
      // A connection that is already gone again fails here; the next one is as good.
      if (!set_tcp_options(socket.get(), kUserTimeout).ok()) continue;
      return socket;
    }
    // accept(2): the client gave up before, or that one connection had a network error.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ||
        errno == EBADF || errno == EINVAL) {
      return accept_failed(errno);
    }
  }
}

uint16_t TcpListener::port() const {
  error_code error;
  const tcp::endpoint address = impl_->acceptor.local_endpoint(error);
  return error ? 0 : address.port();
}

int TcpListener::descriptor() const { return impl_->acceptor.native_handle(); }

void TcpListener::stop() { impl_->stopper.signal(); }

}  // namespace fargpu::transport
