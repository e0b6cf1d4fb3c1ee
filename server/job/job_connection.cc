#include "server/job/job_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace fargpu::server {

namespace asio = boost::asio;
using boost::system::error_code;

JobConnection::JobConnection(asio::io_context& loop, Fd socket, std::function<void()> on_end)
    : socket_(loop), on_end_(std::move(on_end)) {
  socket_.assign(socket.get());
  (void)socket.release();
}

void JobConnection::start(std::vector<std::byte> answer) {
  answer_ = std::move(answer);
  asio::async_write(socket_, asio::buffer(answer_),
                    [self = shared_from_this()](const error_code& error, size_t) {
                      if (error) return self->end();
                      self->wait_for_end();
                    });
}

void JobConnection::wait_for_end() {
  socket_.async_read_some(asio::buffer(unexpected_),
                          [self = shared_from_this()](const error_code&, size_t) { self->end(); });
}

void JobConnection::close() {
  on_end_ = nullptr;
  end();
}

void JobConnection::end() {
  error_code ignored;
  socket_.close(ignored);
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end();
}

void notice_dead_peers(int socket, std::chrono::milliseconds within) {
  const auto set = [socket](int level, int name, int64_t value) {
    const int number = std::max(1, static_cast<int>(value));
    ::setsockopt(socket, level, name, &number, sizeof number);
  };
  if (within.count() == 0)
    within = std::chrono::minutes(1);
  else  // which the number of probes does not shorten, if one is set
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, within.count());
  const int64_t seconds = within.count() / 1000;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 6);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace fargpu::server
