#include "common/transport/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "common/transport/frame_assembler.h"
#include "common/transport/loss.h"
#include "common/transport/poll.h"
#include "common/transport/stream_sender.h"
#include "common/transport/tcp_options.h"

namespace fargpu::transport {
namespace {

// One receive() stops after about this much, so that a fast peer cannot keep its caller for ever.
constexpr size_t kReceiveBudgetBytes = 4 << 20;
// The send buffer holds one body of the largest size; a peer may announce any size.
constexpr uint32_t kLargestSendBody = 16u << 20;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class StreamTransport final : public Transport {
 public:
  StreamTransport(Fd socket, EventFd waker, Fd poller, bool is_tcp, StreamOptions options)
      : options_(std::move(options)),
        socket_(std::move(socket)),
        waker_(std::move(waker)),
        poller_(std::move(poller)),
        is_tcp_(is_tcp),
        peer_(peer_name(socket_.get())),
        sender_(socket_.get(), sizeof(wire::FrameHeader) + options_.max_send_body_bytes,
                options_.stall_timeout),
        assembler_(options_.receive_limits) {
    if (!options_.initial_bytes.empty()) waker_.signal();  // poll_descriptor() shall say so
  }
  ~StreamTransport() override { close(); }

  Capabilities capabilities() const override {
    return {.name = is_tcp_ ? "tcp" : "unix",
            .max_slot_bytes = sizeof(wire::FrameHeader) + options_.max_send_body_bytes};
  }

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    if (bytes > sizeof(wire::FrameHeader) + options_.max_send_body_bytes) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a frame of {} bytes is larger than the peer's limit of {}", bytes,
                                sizeof(wire::FrameHeader) + options_.max_send_body_bytes));
    }
    auto slot = sender_.reserve(bytes, deadline);
    if (!slot.ok() && slot.status().code() != StatusCode::kTimeout) return lose(slot.status());
    return slot;
  }

  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.commit(bytes, bulk, deadline);
    if (status.ok() || status.code() == StatusCode::kInvalidArgument) return status;
    return lose(std::move(status));
  }

  Status flush(Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.flush(deadline);
    if (status.ok() || status.code() == StatusCode::kTimeout) return status;
    return lose(std::move(status));
  }

  Result<size_t> receive(FrameHandler& handler, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    if (!options_.initial_bytes.empty()) {
      auto delivered = take_initial_bytes(handler);
      if (!delivered.ok()) return lose(delivered.status());
      if (*delivered > 0) return delivered;
    }
    auto delivered = receive_some(handler, deadline);
    if (!delivered.ok()) return lose(delivered.status());
    return delivered;
  }

  void wake() override {
    woken_hint_.store(true, std::memory_order_relaxed);
    waker_.signal();
  }
  int poll_descriptor() const override { return poller_.get(); }
  int peer_socket() const override { return socket_.get(); }

  void close() override {
    (void)lose(Status(StatusCode::kLost, "the connection was closed on this side"));
  }

  void abandon_after_fork() override {
    loss_.abandon();
    socket_.reset();
    waker_.reset();
    poller_.reset();
  }

  Statistics statistics() const override {
    return {sender_.frames.get(), frames_received_.get(), sender_.bytes.get(),
            bytes_received_.get(), sender_.system_calls.get() + receive_calls_.get()};
  }

  std::string describe() const override { return (is_tcp_ ? "tcp " : "unix ") + peer_; }

 private:
  Status lose(Status why) {
    return loss_.record(std::move(why), [this] {
      // Both directions, so that the peer and every thread of ours that waits on the socket notice.
      // The descriptor stays open until destruction: its number must not be reused under a thread
      // that still waits.
      ::shutdown(socket_.get(), SHUT_RDWR);
      wake();
    });
  }

  Result<size_t> take_initial_bytes(FrameHandler& handler) {
    size_t delivered = 0;
    std::vector<std::byte> initial = std::move(options_.initial_bytes);
    options_.initial_bytes.clear();
    for (Bytes rest = initial; !rest.empty();) {
      size_t filled = 0;
      for (std::span<std::byte> room : assembler_.writable()) {
        const size_t take = std::min(room.size(), rest.size());
        if (take > 0) std::memcpy(room.data(), rest.data(), take);
        rest = rest.subspan(take);
        filled += take;
      }
      bytes_received_.add(filled);
      FARGPU_ASSIGN_OR_RETURN(const size_t frames, assembler_.advance(filled, handler));
      frames_received_.add(frames);
      delivered += frames;
    }
    return delivered;
  }

  Result<size_t> receive_some(FrameHandler& handler, Deadline deadline) {
    size_t delivered = 0;
    size_t budget = kReceiveBudgetBytes;
    Deadline spin_until{};
    for (;;) {
      const auto room = assembler_.writable();
      iovec pieces[2];
      size_t count = 0, room_bytes = 0;
      for (const auto& piece : room) {
        if (piece.empty()) continue;
        pieces[count++] = iovec{piece.data(), piece.size()};
        room_bytes += piece.size();
      }
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = count;
      const ssize_t received = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
      receive_calls_.add(1);
      if (received > 0) {
        const auto bytes = static_cast<size_t>(received);
        bytes_received_.add(bytes);
        FARGPU_ASSIGN_OR_RETURN(const size_t frames, assembler_.advance(bytes, handler));
        frames_received_.add(frames);
        delivered += frames;
        budget -= std::min(budget, bytes);
        if (delivered > 0 && (bytes < room_bytes || budget == 0)) return delivered;
        if (bytes == room_bytes) continue;
        // A short read took all there was: sleep without asking again.
      } else if (received == 0) {
        return Status(StatusCode::kLost,
                      assembler_.at_boundary()
                          ? "the peer closed the connection"
                          : "the peer closed the connection in the middle of a frame");
      } else if (errno == EINTR) {
        continue;
      } else if (errno != EAGAIN) {
        return Status(StatusCode::kLost,
                      system_error("connection lost while receiving", errno).message());
      }
      if (delivered > 0) return delivered;

      if (options_.spin.count() > 0) {
        const auto now = Clock::now();
        if (spin_until == Deadline{}) spin_until = std::min(now + options_.spin, deadline);
        if (now < spin_until && !woken_hint_.load(std::memory_order_relaxed)) {
          relax();
          continue;
        }
      }
      FARGPU_ASSIGN_OR_RETURN(const bool readable, wait_readable(deadline));
      if (!readable) return size_t{0};
    }
  }

  // False: woken, or the deadline has passed.
  Result<bool> wait_readable(Deadline deadline) {
    pollfd descriptors[2] = {{socket_.get(), POLLIN, 0}, {waker_.get(), POLLIN, 0}};
    receive_calls_.add(1);
    FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(descriptors, deadline));
    if (ready == 0) return false;
    if (descriptors[1].revents != 0) {
      woken_hint_.store(false, std::memory_order_relaxed);
      waker_.drain();
      if (loss_.happened()) return loss_.status();
      return false;
    }
    return true;
  }

  StreamOptions options_;
  Fd socket_;
  EventFd waker_;
  Fd poller_;  // epoll over the socket and the waker
  const bool is_tcp_;
  const std::string peer_;
  StreamSender sender_;
  FrameAssembler assembler_;
  Counter frames_received_, bytes_received_, receive_calls_;
  std::atomic<bool> woken_hint_{false};  // ends spinning early; the waker itself is what counts
  Loss loss_;
};

Result<Fd> make_poller(int socket, int waker) {
  Fd poller(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller.valid()) return system_error("cannot create an epoll descriptor", errno);
  for (int descriptor : {socket, waker}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return system_error("cannot watch a descriptor", errno);
    }
  }
  return poller;
}

}  // namespace

Result<std::unique_ptr<Transport>> from_fd(Fd socket, StreamOptions options) {
  int type = 0, domain = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    return system_error(fmt::format("descriptor {} is not a socket", socket.get()), errno);
  }
  length = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0) {
    return system_error(fmt::format("descriptor {} has no address family", socket.get()), errno);
  }
  const bool is_tcp = domain == AF_INET || domain == AF_INET6;
  if (type != SOCK_STREAM || (!is_tcp && domain != AF_UNIX)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("descriptor {} is not a TCP or unix stream socket", socket.get()));
  }
  if (::fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0)
    return system_error("cannot set close-on-exec", errno);
  if (is_tcp) FARGPU_RETURN_IF_ERROR(set_tcp_options(socket.get()));
  options.max_send_body_bytes = std::min(options.max_send_body_bytes & ~7u, kLargestSendBody);
  FARGPU_ASSIGN_OR_RETURN(EventFd waker, EventFd::create());
  FARGPU_ASSIGN_OR_RETURN(Fd poller, make_poller(socket.get(), waker.get()));
  return std::unique_ptr<Transport>(std::make_unique<StreamTransport>(
      std::move(socket), std::move(waker), std::move(poller), is_tcp, std::move(options)));
}

std::string peer_name(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return "unknown peer";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
  }
  return "unix";
}

}  // namespace fargpu::transport
