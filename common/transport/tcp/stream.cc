#include "common/transport/tcp/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "common/base/descriptors.h"
#include "common/host/look_again.h"
#include "common/transport/frame_assembler.h"
#include "common/transport/loss.h"
#include "common/transport/poll.h"
#include "common/transport/socket_address.h"
#include "common/transport/spin.h"
#include "common/transport/tcp/socket_calls.h"
#include "common/transport/tcp/stream_sender.h"
#include "common/transport/tcp/tcp_options.h"

namespace fargpu::transport {
namespace {

// One receive() returns after about this much, so that a fast peer cannot hold the caller for ever.
constexpr size_t kReceiveBudgetBytes = 4 << 20;
// The send buffer holds one body of the largest size; a peer may announce any size.
constexpr uint32_t kLargestSendBody = 16u << 20;
// How long frames on the first connection are awaited after another connection has ended: the peer
// may have sent them before it closed all of them.
constexpr auto kLastFrames = std::chrono::seconds(1);

// Whether the two ends of a TCP socket have different addresses.
bool other_host(int socket) {
  const auto local = SocketAddress::local_of(socket), remote = SocketAddress::remote_of(socket);
  return local.ok() && remote.ok() && local->host() != remote->host();
}

std::vector<int> numbers_of(const std::vector<Fd>& sockets) {
  std::vector<int> numbers;
  for (const Fd& socket : sockets) numbers.push_back(socket.get());
  return numbers;
}

class StreamTransport final : public Transport {
 public:
  StreamTransport(std::vector<Fd> sockets, EventFd waker, Fd poller, bool is_tcp,
                  StreamOptions options)
      : options_(std::move(options)),
        sockets_(std::move(sockets)),
        waker_(std::move(waker)),
        poller_(std::move(poller)),
        is_tcp_(is_tcp),
        crosses_network_(!options_.behind.empty() || (is_tcp && other_host(sockets_[0].get()))),
        peer_(peer_name(sockets_[0].get())),
        sender_(numbers_of(sockets_), sizeof(wire::FrameHeader) + options_.max_send_body_bytes,
                options_.stall_timeout),
        assembler_(options_.receive_limits, sockets_.size()) {
    if (!options_.initial_bytes.empty()) waker_.signal();  // makes poll_descriptor() readable
  }
  ~StreamTransport() override { close(); }

  Capabilities capabilities() const override {
    return {.name = !options_.behind.empty() ? "tls"
                    : is_tcp_                ? "tcp"
                                             : "unix",
            .max_slot_bytes = sizeof(wire::FrameHeader) + options_.max_send_body_bytes,
            .sends_aside = true,
            .crosses_network = crosses_network_};
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

  Status post(const wire::FrameHeader& header, Bytes body) override {
    const bool fits = body.size() <= options_.max_send_body_bytes;
    if (!loss_.happened() && fits && sender_.try_post(header, body)) [[likely]]
      return Status();
    return Transport::post(header, body);
  }

  Status flush(Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.flush(deadline);
    if (status.ok() || status.code() == StatusCode::kTimeout) return status;
    return lose(std::move(status));
  }

  bool set_aside() override { return !loss_.happened() && sender_.set_aside(); }
  Status send_aside() override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.send_aside();
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
  int peer_socket() const override { return sockets_[0].get(); }
  bool arm() override {
    if (sockets_.size() > 1) watch(wanted());
    return true;
  }

  void close() override {
    (void)lose(Status(StatusCode::kLost, "the connection was closed on this side"));
  }

  void abandon_after_fork() override {
    loss_.abandon();
    for (Fd& socket : sockets_) socket.reset();
    waker_.reset();
    poller_.reset();
  }

  Statistics statistics() const override {
    return {sender_.frames.get(), frames_received_.get(), sender_.bytes.get(),
            bytes_received_.get(), sender_.system_calls.get() + receive_calls_.get()};
  }

  std::string describe() const override {
    if (!options_.behind.empty()) return options_.behind;
    std::string text = (is_tcp_ ? "tcp " : "unix ") + peer_;
    if (sockets_.size() > 1) text += fmt::format(" by {} connections", sockets_.size());
    return text;
  }

 private:
  Status lose(Status why) {
    return loss_.record(std::move(why), [this] {
      // Both directions, so that the peer and every thread of ours that waits on a socket notice.
      // The descriptors stay open until destruction: their numbers must not be reused under a
      // thread that still waits.
      for (const Fd& socket : sockets_) ::shutdown(descriptors::own(socket.get()), SHUT_RDWR);
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

  // The outcome of one poll of the connections.
  struct Taken {
    size_t bytes = 0;
    size_t frames = 0;
    bool more = false;  // more may be readable at once
  };

  Result<size_t> receive_some(FrameHandler& handler, Deadline deadline) {
    size_t delivered = 0;
    size_t budget = kReceiveBudgetBytes;
    std::optional<Spin> spin;
    for (;;) {
      FARGPU_ASSIGN_OR_RETURN(const Taken taken,
                              assembler_.in_bulk() ? take_bulk(handler) : take(0, handler));
      delivered += taken.frames;
      budget -= std::min(budget, taken.bytes);
      if (delivered > 0 && (!taken.more || budget == 0)) return delivered;
      if (taken.more) continue;

      if (options_.spin.count() > 0) {
        if (!spin) spin.emplace(options_.spin, deadline);
        // A look is a system call, which costs more than the clock.
        if (!woken_hint_.load(std::memory_order_relaxed) && spin->go_on(Clock::now())) continue;
      }
      FARGPU_ASSIGN_OR_RETURN(const bool readable, wait_readable(deadline));
      if (!readable) return size_t{0};
    }
  }

  // While bulk is arriving: reads every connection that carries a missing part of it.
  Result<Taken> take_bulk(FrameHandler& handler) {
    Taken all;
    for (size_t i = 0; i < sockets_.size() && all.frames == 0; ++i) {
      if (i == 0 ? assembler_.must_wait() : assembler_.share_room(i).empty()) continue;
      FARGPU_ASSIGN_OR_RETURN(const Taken taken, take(i, handler));
      all.bytes += taken.bytes;
      all.frames += taken.frames;
      all.more = all.more || taken.more;
    }
    // Frames behind the one that is complete now may be buffered already.
    if (all.frames > 0 && sockets_.size() > 1) all.more = true;
    return all;
  }

  // One read from one connection, to where its bytes go.
  Result<Taken> take(size_t index, FrameHandler& handler) {
    iovec pieces[2];
    size_t count = 0, room = 0;
    const auto add = [&](std::span<std::byte> piece) {
      if (piece.empty()) return;
      pieces[count++] = iovec{piece.data(), piece.size()};
      room += piece.size();
    };
    if (index == 0) {
      for (const auto& piece : assembler_.writable()) add(piece);
    } else {
      add(assembler_.share_room(index));
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    for (;;) {
      const int socket = sockets_[index].get();  // as in StreamSender::write_some
      const ssize_t received = count == 1
                                   ? receive_at_once(socket, pieces[0].iov_base, pieces[0].iov_len)
                                   : ::recvmsg(socket, &message, MSG_DONTWAIT);
      receive_calls_.add(1);
      if (received > 0) {
        const auto bytes = static_cast<size_t>(received);
        bytes_received_.add(bytes);
        FARGPU_ASSIGN_OR_RETURN(const size_t frames,
                                index == 0 ? assembler_.advance(bytes, handler)
                                           : assembler_.advance_share(index, bytes, handler));
        frames_received_.add(frames);
        // A short read took all there was: sleep without asking again.
        return Taken{bytes, frames, bytes == room};
      }
      if (received == 0) return Status(StatusCode::kLost, why_ended(index));
      if (errno == EAGAIN) return Taken{};
      if (errno != EINTR) {
        return Status(StatusCode::kLost,
                      system_error("connection lost while receiving", errno).message());
      }
    }
  }

  const char* why_ended(size_t index) const {
    if (index != 0) return "the peer closed one of the session's connections";
    return assembler_.at_boundary() ? "the peer closed the connection"
                                    : "the peer closed the connection in the middle of a frame";
  }

  // The connections from which the next bytes come, by bit.
  unsigned wanted() const {
    unsigned connections = assembler_.must_wait() ? 0 : 1;
    for (size_t i = 1; i < sockets_.size(); ++i) {
      if (!assembler_.share_room(i).empty()) connections |= 1u << i;
    }
    return connections;
  }

  // False: woken, or the deadline has passed.
  Result<bool> wait_readable(Deadline deadline) {
    if (sockets_.size() > 1) return wait_for_several(deadline);
    if (deadline == kNoDeadline) return wait_for_ever();
    pollfd descriptors[2] = {{waker_.get(), POLLIN, 0}, {sockets_[0].get(), POLLIN, 0}};
    receive_calls_.add(1);
    FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(descriptors, deadline));
    if (ready == 0) return false;
    if (descriptors[0].revents != 0) return woken();
    return true;
  }

  // Like wait_readable(), on the epoll descriptor that is set up already: cheaper, but its time-out
  // has a resolution of milliseconds.
  Result<bool> wait_for_ever() {
    constexpr int kLook = std::chrono::milliseconds(descriptors::kLookAgain).count();
    const int patience = descriptors::is_foreign_process() ? kLook : -1;
    epoll_event events[2];
    receive_calls_.add(1);
    const int ready = ::epoll_wait(poller_.get(), events, 2, patience);
    if (ready < 0 && errno != EINTR) return system_error("cannot wait for the peer", errno);
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.fd == waker_.get()) return woken();
    }
    return true;
  }

  // Always false, or the loss.
  Result<bool> woken() {
    woken_hint_.store(false, std::memory_order_relaxed);
    waker_.drain();
    if (loss_.happened()) return loss_.status();
    return false;
  }

  // Like wait_readable(). The other connections are watched for their end, which ends the session
  // unless the first one still brings frames that were sent before.
  Result<bool> wait_for_several(Deadline deadline) {
    const unsigned connections = wanted();
    pollfd entries[1 + kMaxConnections] = {{waker_.get(), POLLIN, 0}};
    size_t count = 1;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      const bool expected = (connections & 1u << i) != 0;
      if (!expected && ended_by_) continue;
      entries[count++] = {sockets_[i].get(), static_cast<short>(expected ? POLLIN : POLLRDHUP), 0};
    }
    receive_calls_.add(1);
    const Deadline until = ended_by_ ? std::min(deadline, *ended_by_) : deadline;
    FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(std::span(entries, count), until));
    if (ready == 0) {
      if (until == deadline) return false;
      return Status(StatusCode::kLost, why_ended(1));
    }
    if (entries[0].revents != 0) return woken();
    bool readable = false;
    for (size_t i = 1; i < count; ++i) {
      if (entries[i].revents == 0) continue;
      if (entries[i].events == POLLIN) {
        readable = true;
      } else {
        ended_by_ = Clock::now() + kLastFrames;
      }
    }
    if (readable && ended_by_) ended_by_ = Clock::now() + kLastFrames;
    return true;
  }

  // What poll_descriptor() shows: these connections, by bit.
  void watch(unsigned connections) {
    if (connections == watched_) return;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      epoll_event event{};
      event.events = (connections & 1u << i) != 0 ? EPOLLIN | EPOLLRDHUP : EPOLLRDHUP;
      event.data.fd = sockets_[i].get();
      (void)::epoll_ctl(poller_.get(), EPOLL_CTL_MOD, sockets_[i].get(), &event);
    }
    watched_ = connections;
  }

  StreamOptions options_;
  std::vector<Fd> sockets_;  // the first carries the frames, the others shares of large bulk only
  EventFd waker_;
  Fd poller_;                         // epoll over the sockets and the waker
  unsigned watched_ = 1;              // the sockets whose bytes it shows, by bit
  std::optional<Deadline> ended_by_;  // another connection than the first has ended
  const bool is_tcp_;
  const bool crosses_network_;
  const std::string peer_;
  StreamSender sender_;
  FrameAssembler assembler_;
  Counter frames_received_, bytes_received_, receive_calls_;
  std::atomic<bool> woken_hint_{false};  // ends spinning early; only the waker is authoritative
  Loss loss_;
};

Result<Fd> make_poller(const std::vector<Fd>& sockets, int waker) {
  Fd poller = descriptors::make([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!poller.valid()) return system_error("cannot create an epoll descriptor", errno);
  std::vector<int> descriptors = numbers_of(sockets);
  descriptors.push_back(waker);
  for (size_t i = 0; i < descriptors.size(); ++i) {
    epoll_event event{};
    // The others show bytes only while some are expected: see watch().
    event.events = i == 0 || i == sockets.size() ? EPOLLIN | EPOLLRDHUP : EPOLLRDHUP;
    event.data.fd = descriptors[i];
    if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, descriptors[i], &event) != 0) {
      return system_error("cannot watch a descriptor", errno);
    }
  }
  return poller;
}

// Whether it is TCP. Sets what a transport's socket needs.
Result<bool> prepare(const Fd& socket, std::chrono::milliseconds user_timeout) {
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
  if (is_tcp) FARGPU_RETURN_IF_ERROR(set_tcp_options(socket.get(), user_timeout));
  return is_tcp;
}

}  // namespace

Result<std::unique_ptr<Transport>> from_fd(Fd socket, StreamOptions options) {
  std::vector<Fd> sockets;
  sockets.push_back(std::move(socket));
  return from_fds(std::move(sockets), std::move(options));
}

Result<std::unique_ptr<Transport>> from_fds(std::vector<Fd> sockets, StreamOptions options) {
  if (sockets.empty() || sockets.size() > kMaxConnections) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("a session has 1 to {} connections, not {}", kMaxConnections, sockets.size()));
  }
  bool is_tcp = false;
  const auto user_timeout =
      options.stall_timeout < StreamOptions::kNeverStalls ? kUserTimeout : kNoUserTimeout;
  for (const Fd& socket : sockets) {
    FARGPU_ASSIGN_OR_RETURN(is_tcp, prepare(socket, user_timeout));
  }
  options.max_send_body_bytes = std::min(options.max_send_body_bytes & ~7u, kLargestSendBody);
  FARGPU_ASSIGN_OR_RETURN(EventFd waker, EventFd::create());
  FARGPU_ASSIGN_OR_RETURN(Fd poller, make_poller(sockets, waker.get()));
  return std::unique_ptr<Transport>(std::make_unique<StreamTransport>(
      std::move(sockets), std::move(waker), std::move(poller), is_tcp, std::move(options)));
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
