// One connection from its acceptance to the end of its first frame or of the answer to it. All
// input from peers that are not admitted yet is read here, under limits and a deadline. On the
// daemon's event loop.
//
// A Handshake keeps itself alive while an operation is under way. It calls back at most once, with
// the first frame; the callee answers by reply_and_close() or takes the connection by
// take_socket(). A malformed frame is refused here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/wire/frame.h"

namespace fargpu::server {

class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using OnFrame = std::function<void(std::shared_ptr<Handshake>)>;
  // Takes a connection that begins with a TLS handshake; returns the plain end of its relay.
  using Decrypt = std::function<Result<Fd>(Fd socket)>;
  // Called exactly once: the connection is closed or given away.
  using OnEnd = std::function<void(const Handshake&)>;
  // Throws where the loop cannot watch the socket, which is closed then.
  Handshake(boost::asio::io_context& loop, Fd socket, std::string peer,
            std::chrono::milliseconds deadline, OnFrame on_frame, OnEnd on_end,
            Decrypt decrypt = nullptr);
  ~Handshake();

  void start();
  // It has said nothing, or less than a header; a part of its first frame; all of it; it has been
  // answered, and is to close.
  enum class Stage { kSilent, kReading, kAsked, kAnswered };
  Stage stage() const { return stage_; }
  // Closes it without a word, to make room for others.
  void evict() { close(nullptr); }
  const wire::FrameHeader& header() const { return header_; }
  std::span<const std::byte> body() const { return std::as_bytes(std::span(body_)); }
  const std::string& peer() const { return peer_; }
  // Not valid once it has been taken.
  int socket() const {
    return socket_.is_open() ? const_cast<decltype(socket_)&>(socket_).native_handle() : -1;
  }
  // Whether the connection is encrypted; whether it is not although the server requires TLS.
  bool encrypted() const { return encrypted_; }
  bool in_the_clear() const { return decrypt_ && !encrypted_; }

  // Sends `frame`, waits for the peer to close (within the deadline), closes.
  void reply_and_close(std::vector<std::byte> frame);
  // The connection, with nothing read beyond the first frame.
  Fd take_socket();

 private:
  void arm_deadline();
  void look_for_tls();
  void read_header();
  void read_body();
  void drain();
  void close(const char* why);

  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  const std::string peer_;
  const std::chrono::milliseconds deadline_;
  OnFrame on_frame_;
  const OnEnd on_end_;
  const Decrypt decrypt_;
  bool encrypted_ = false;
  Stage stage_ = Stage::kSilent;
  wire::FrameHeader header_;
  std::vector<uint64_t> body_;
  std::vector<std::byte> answer_;
  char rest_[512];
};

}  // namespace fargpu::server
