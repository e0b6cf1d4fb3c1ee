#include "server/handover/handshake.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "common/base/log.h"
#include "common/wire/control.h"
#include "server/handover/hello.h"

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A hello is small whatever the session's limits are.
constexpr wire::FrameLimits kHelloLimits{64u << 10, 0};

}  // namespace

Handshake::Handshake(asio::io_context& loop, Fd socket, std::string peer,
                     std::chrono::milliseconds deadline, OnFrame on_frame, OnEnd on_end,
                     Decrypt decrypt)
    : socket_(loop),
      timer_(loop),
      peer_(std::move(peer)),
      deadline_(deadline),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)),
      decrypt_(std::move(decrypt)) {
  socket_.assign(socket.get());
  (void)socket.release();
}

Handshake::~Handshake() {
  if (on_end_) on_end_(*this);
}

void Handshake::start() {
  arm_deadline();
  if (decrypt_) return look_for_tls();
  read_header();
}

// The first byte tells TLS from our frames. Anything else is read as a frame and refused.
void Handshake::look_for_tls() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](
                                                                    const error_code& error) {
    if (error) return self->close("closed before its hello");
    constexpr unsigned char kTlsHandshake = 22;  // content type of a TLS record, RFC 8446
    unsigned char first = 0;
    if (::recv(self->socket_.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 &&
        first == kTlsHandshake) {
      auto plain = self->decrypt_(Fd(self->socket_.release()));
      if (!plain.ok()) {
        log::error("event=connection-dropped peer={} why=\"{}\"", self->peer_,
                   plain.status().message());
        self->timer_.cancel();
        return;
      }
      self->socket_.assign(plain->get());
      (void)plain->release();
      self->encrypted_ = true;
    }
    self->read_header();
  });
}

void Handshake::read_header() {
  asio::async_read(
      socket_, asio::buffer(&header_, sizeof header_),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (error) return self->close("closed before its hello");
        if (Status status = wire::check_header(self->header_, kHelloLimits); !status.ok()) {
          log::warn("event=bad-hello peer={} why=\"{}\"", self->peer_, status.message());
          return self->reply_and_close(
              encode_refusal(wire::kHello, self->header_.sequence, status, false));
        }
        self->stage_ = Stage::kReading;
        self->read_body();
      });
}

void Handshake::read_body() {
  body_.resize(header_.body_bytes / sizeof(uint64_t));
  asio::async_read(socket_, asio::buffer(body_),
                   [self = shared_from_this()](const error_code& error, size_t) {
                     if (error) return self->close("closed in the middle of its hello");
                     self->timer_.cancel();
                     self->stage_ = Stage::kAsked;
                     if (auto on_frame = std::exchange(self->on_frame_, nullptr)) on_frame(self);
                   });
}

void Handshake::arm_deadline() {
  timer_.expires_after(deadline_);
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    if (error) return;
    if (auto self = weak.lock()) self->close("too slow");
  });
}

void Handshake::reply_and_close(std::vector<std::byte> frame) {
  if (!socket_.is_open()) return;
  answer_ = std::move(frame);
  stage_ = Stage::kAnswered;
  arm_deadline();
  asio::async_write(socket_, asio::buffer(answer_),
                    [self = shared_from_this()](const error_code& error, size_t) {
                      if (error) return self->close("closed before its answer");
                      // Closing with unread input would reset the connection, and the peer might
                      // never see the answer: its end comes first.
                      ::shutdown(self->socket_.native_handle(), SHUT_WR);
                      self->drain();
                    });
}

void Handshake::drain() {
  socket_.async_read_some(asio::buffer(rest_),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (error) return self->close(nullptr);
                            self->drain();
                          });
}

Fd Handshake::take_socket() {
  timer_.cancel();
  if (!socket_.is_open()) return Fd();
  Fd socket(socket_.release());
  // The event loop has made it non-blocking, which a worker inherits with it.
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

void Handshake::close(const char* why) {
  if (!socket_.is_open()) return;
  if (why != nullptr) log::info("event=connection-dropped peer={} why=\"{}\"", peer_, why);
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace fargpu::server
