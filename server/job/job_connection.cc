#include "server/job/job_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

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

void notice_dead_peers(int socket) {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);  // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace fargpu::server
