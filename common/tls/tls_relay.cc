#include "common/tls/tls_relay.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/base/descriptors.h"

namespace fargpu::tls {

Relay::Relay(ssl_st* session, int socket, int plain)
    : session_(session), socket_(socket), plain_(plain) {}

void Relay::run() {
  for (;;) {
    socket_events_ = plain_events_ = 0;
    // The session knows its socket by number.
    if (descriptors::own(socket_) < 0 || !from_peer() || !to_peer()) break;
    // The peer's last bytes are delivered: that is the end for both.
    if (in_.ended && in_.empty()) break;
    wait();
  }
  ::shutdown(descriptors::own(plain_), SHUT_RDWR);
  ::shutdown(descriptors::own(socket_), SHUT_RDWR);
}

bool Relay::note(int result) {
  switch (SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ:
      socket_events_ |= POLLIN;
      return true;
    case SSL_ERROR_WANT_WRITE:
      socket_events_ |= POLLOUT;
      return true;
    default:
      return false;
  }
}

bool Relay::from_peer() {
  // A few rounds, so that one direction cannot starve the other.
  for (int round = 0; round < 16; ++round) {
    if (in_.empty()) {
      if (in_.ended) return true;
      in_.begin = in_.end = 0;
      ERR_clear_error();
      const int got = SSL_read(session_, in_.bytes.get(), kBytes);
      if (got <= 0) {
        if (note(got)) return true;
        in_.ended = true;
        return true;
      }
      in_.end = static_cast<size_t>(got);
    }
    const ssize_t sent = ::send(descriptors::own(plain_), in_.bytes.get() + in_.begin,
                                in_.end - in_.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      in_.begin += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      plain_events_ |= POLLOUT;
      return true;
    } else if (errno != EINTR) {
      return false;  // the reader has gone
    }
  }
  socket_events_ |= POLLIN | POLLOUT;  // there may be more inside the session: come back at once
  return true;
}

bool Relay::to_peer() {
  for (int round = 0; round < 16; ++round) {
    if (out_.empty()) {
      if (out_.ended) break;
      const ssize_t got = ::recv(descriptors::own(plain_), out_.bytes.get(), kBytes, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) {
        plain_events_ |= POLLIN;
        return true;
      }
      if (got < 0) return false;
      out_.begin = 0;
      out_.end = static_cast<size_t>(got);
      out_.ended = got == 0;
      if (out_.ended) break;
    }
    ERR_clear_error();
    const int sent =
        SSL_write(session_, out_.bytes.get() + out_.begin, static_cast<int>(out_.end - out_.begin));
    if (sent <= 0) return note(sent);
    out_.begin += static_cast<size_t>(sent);
  }
  if (!out_.ended) {
    // The rounds are used up: come back for what is left.
    if (out_.empty()) {
      plain_events_ |= POLLIN;
    } else {
      socket_events_ |= POLLOUT;
    }
    return true;
  }
  if (!said_end_) {
    ERR_clear_error();
    const int said = SSL_shutdown(session_);
    if (said < 0) return note(said);
    said_end_ = true;
    ::shutdown(descriptors::own(socket_), SHUT_WR);
  }
  return true;
}

void Relay::wait() {
  // An end without expected events is not polled: once closed, it would always be ready.
  pollfd entries[2] = {{socket_events_ != 0 ? socket_ : -1, socket_events_, 0},
                       {plain_events_ != 0 || out_.ended ? plain_ : -1, plain_events_, 0}};
  while (::poll(entries, 2, -1) < 0 && errno == EINTR) {
  }
  // Closed entirely, not only for writing: the other side can neither read nor send.
  if (out_.ended && (entries[1].revents & (POLLHUP | POLLERR)) != 0) {
    in_.begin = in_.end;
    in_.ended = true;
  }
}

}  // namespace fargpu::tls
