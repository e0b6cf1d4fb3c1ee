// The loop of a TlsConnection: carries bytes both ways until either end is closed. Used by
// TlsConnection only; one thread.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>

struct ssl_st;

namespace fargpu::tls {

class Relay {
 public:
  // After the handshake; the descriptors stay the caller's. `socket` does not block.
  Relay(ssl_st* session, int socket, int plain);
  void run();

 private:
  static constexpr size_t kBytes = 64 << 10;

  // Bytes on their way in one direction.
  struct Direction {
    std::unique_ptr<char[]> bytes{new char[kBytes]};
    size_t begin = 0, end = 0;
    bool ended = false;  // no more will come
    bool empty() const { return begin == end; }
  };

  // Each moves as many bytes as possible without waiting, and records its next wait. False: the
  // relay is over.
  bool from_peer();
  bool to_peer();
  // The event that an SSL call waits for; false: the connection is at its end.
  bool note(int result);
  void wait();

  ssl_st* const session_;
  const int socket_, plain_;
  Direction in_, out_;
  short socket_events_ = 0, plain_events_ = 0;
  bool said_end_ = false;
};

}  // namespace fargpu::tls
