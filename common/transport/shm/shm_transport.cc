#include "common/transport/shm/shm_transport.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/descriptors.h"
#include "common/host/look_again.h"
#include "common/transport/loss.h"
#include "common/transport/poll.h"
#include "common/transport/shm/shm_receiver.h"
#include "common/transport/shm/shm_sender.h"
#include "common/transport/spin.h"

namespace fargpu::transport {
namespace {

// A peer may announce any size; slots are at most this large.
constexpr uint32_t kLargestSendBody = 16u << 20;
// A caller that polls without ever sleeping notices the peer's end at most this much later.
constexpr auto kLookAtSocket = std::chrono::milliseconds(1);

std::string name_of_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known =
      ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid > 0;
  return known ? fmt::format("shm process {}", peer.pid) : std::string("shm");
}

class ShmTransport final : public Transport, public DescriptorPassing {
 public:
  ShmTransport(RingMemory out, RingMemory in, ShmSegment segment, Fd session, Fd room,
               ShmParts parts, const ShmOptions& options)
      : segment_(std::move(segment)),
        socket_(std::move(session), std::move(room)),
        waker_(std::move(parts.waker)),
        poller_(std::move(parts.poller)),
        spin_(options.spin),
        name_(name_of_peer(socket_.session())),
        max_slot_bytes_(sizeof(wire::FrameHeader) +
                        (std::min(options.max_send_body_bytes, kLargestSendBody) & ~7u)),
        sender_(out, socket_, max_slot_bytes_, options.stall_timeout, options.spin),
        receiver_(in, socket_, options.receive_limits) {}
  ~ShmTransport() override { close(); }

  Capabilities capabilities() const override {
    return {.name = "shm",
            .max_slot_bytes = max_slot_bytes_,
            .same_host = true,
            .visible_at_commit = true};
  }

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    auto slot = sender_.reserve(bytes, deadline);
    if (slot.ok() || harmless(slot.status())) return slot;
    return lose(slot.status());
  }

  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.commit(bytes, bulk, deadline);
    return status.ok() || harmless(status) ? status : lose(std::move(status));
  }

  Status post(const wire::FrameHeader& header, Bytes body) override {
    if (!loss_.happened() && sender_.try_post(header, body)) [[likely]]
      return Status();
    return Transport::post(header, body);
  }

  bool take_memory(size_t bytes) override {
    const size_t from = std::exchange(memory_taken_, memory_taken_ + bytes);
    return segment_.make_present(from, bytes);
  }

  Status flush(Deadline) override {
    if (loss_.happened()) return loss_.status();
    sender_.flush();
    return Status();
  }

  bool seen_without_flush() override { return sender_.peer_is_awake(); }

  Result<size_t> receive(FrameHandler& handler, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    auto delivered = receive_some(handler, deadline);
    if (!delivered.ok()) return lose(delivered.status());
    return delivered;
  }

  void wake() override {
    woken_.store(true, std::memory_order_relaxed);
    waker_.signal();
  }
  void watch_word(const WatchedWord* word) override { watched_ = word; }
  bool arm() override {
    if (loss_.happened() || armed_) return !loss_.happened();
    return armed_ = receiver_.ring().announce_sleep();
  }
  int poll_descriptor() const override { return poller_.get(); }
  int peer_socket() const override { return socket_.session(); }
  DescriptorPassing* descriptor_passing() override { return this; }

  void close() override {
    (void)lose(Status(StatusCode::kLost, "the connection was closed on this side"));
  }

  void abandon_after_fork() override {
    loss_.abandon();
    socket_.abandon();
    waker_.reset();
    poller_.reset();
  }

  Statistics statistics() const override {
    return {sender_.frames.get(), receiver_.frames.get(), sender_.bytes.get(),
            receiver_.bytes.get(), socket_.send_calls.get() + socket_.receive_calls.get()};
  }
  std::string describe() const override { return name_; }

  // DescriptorPassing.
  Status send(uint64_t number, int descriptor) override {
    if (loss_.happened()) return loss_.status();
    Status status = sender_.send_descriptor(number, descriptor);
    return status.code() == StatusCode::kLost ? lose(std::move(status)) : status;
  }
  Result<Fd> take(uint64_t number) override {
    if (loss_.happened()) return loss_.status();
    if (armed_) disarm();  // the awaited bell may be among those that are drained
    if (Status status = socket_.drain(); !status.ok()) return lose(std::move(status));
    auto taken = socket_.take(number);
    if (taken.ok()) receiver_.ring().set_descriptors_taken(++descriptors_taken_);
    return taken;
  }

 private:
  static bool harmless(const Status& status) {
    return status.code() == StatusCode::kTimeout || status.code() == StatusCode::kInvalidArgument;
  }

  Status lose(Status why) {
    return loss_.record(std::move(why), [this] {
      // The descriptors stay open until destruction: their numbers must not be reused under a
      // thread that still waits.
      socket_.shut_down();
      wake();
    });
  }

  Result<size_t> receive_some(FrameHandler& handler, Deadline deadline) {
    if (armed_) {
      // A thread slept on poll_descriptor(). Drain the bytes that made it readable, or it would
      // stay readable.
      disarm();
      waker_.drain();
      FARGPU_RETURN_IF_ERROR(socket_.drain());
    }
    for (bool may_spin = true;;) {
      // Frames that were sent before the connection ended, or the watched word was written, are
      // delivered first, so the order of these lines matters.
      const bool ended = socket_.ended();
      const bool written = watched_word_is_written();
      const uint64_t bytes_before = receiver_.bytes.get();
      FARGPU_ASSIGN_OR_RETURN(const size_t delivered, receiver_.deliver(handler));
      if (delivered > 0) return delivered;
      if (receiver_.bytes.get() != bytes_before) may_spin = true;
      if (loss_.happened()) return loss_.status();
      if (ended) {
        return Status(StatusCode::kLost,
                      receiver_.in_frame()
                          ? "the peer closed the connection in the middle of a frame"
                          : "the peer closed the connection");
      }
      if (written || take_wake()) return size_t{0};
      if (deadline != kNoDeadline) {
        const auto now = Clock::now();
        if (now >= deadline) {
          FARGPU_RETURN_IF_ERROR(look_at_socket(now));
          return size_t{0};
        }
      }
      if (std::exchange(may_spin, false) && spin(deadline)) continue;
      FARGPU_RETURN_IF_ERROR(sleep(deadline));
    }
  }

  // True when there is something to do.
  bool spin(Deadline deadline) const {
    if (spin_.count() == 0) return false;
    Spin spin(spin_, deadline);
    do {
      if (receiver_.ring().anything_new() || woken_.load(std::memory_order_relaxed) ||
          watched_word_is_written())
        return true;
    } while (spin.go_on());
    return false;
  }

  Status sleep(Deadline deadline) {
    if (!receiver_.ring().announce_sleep()) return Status();
    armed_ = true;
    pollfd sources[2] = {{socket_.session(), POLLIN | POLLRDHUP, 0}, {waker_.get(), POLLIN, 0}};
    socket_.receive_calls.add(1);
    if (descriptors::is_foreign_process())
      deadline = std::min(deadline, deadline_after(descriptors::kLookAgain));
    auto ready = poll_until(sources, deadline);
    const bool rung = disarm();
    FARGPU_RETURN_IF_ERROR(ready.status());
    if (*ready == 0) return look_at_socket(Clock::now());
    if (sources[1].revents != 0) waker_.drain();
    return rung || sources[0].revents != 0 ? socket_.drain() : Status();
  }

  // The peer need not ring from here on. True when it has rung, or is about to.
  bool disarm() {
    armed_ = false;
    return !receiver_.ring().end_sleep();
  }

  Status look_at_socket(Clock::time_point now) {
    if (now - looked_at_socket_ < kLookAtSocket) return Status();
    looked_at_socket_ = now;
    return socket_.drain();
  }

  bool watched_word_is_written() const { return watched_ != nullptr && watched_->reached(); }

  bool take_wake() {
    if (!woken_.load(std::memory_order_relaxed) || !woken_.exchange(false)) return false;
    waker_.drain();
    return true;
  }

  const ShmSegment segment_;
  size_t memory_taken_ = 0;  // bytes of the segment; belongs to the thread in take_memory()
  ShmSocket socket_;
  EventFd waker_;
  Fd poller_;
  const std::chrono::microseconds spin_;
  const std::string name_;
  const size_t max_slot_bytes_;
  ShmSender sender_;
  ShmReceiver receiver_;
  // These belong to the receiving thread.
  bool armed_ = false;
  uint64_t descriptors_taken_ = 0;
  const WatchedWord* watched_ = nullptr;
  Clock::time_point looked_at_socket_{};

  std::atomic<bool> woken_{
      false};  // set before the waker is signalled, cleared before it is drained
  Loss loss_;
};

}  // namespace

Result<ShmParts> ShmParts::create(int session_socket) {
  FARGPU_ASSIGN_OR_RETURN(EventFd waker, EventFd::create());
  Fd poller = descriptors::make([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!poller.valid()) return system_error("cannot create an epoll descriptor", errno);
  for (int descriptor : {session_socket, waker.get()}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return system_error("cannot watch a descriptor", errno);
    }
  }
  return ShmParts{std::move(waker), std::move(poller)};
}

std::unique_ptr<Transport> make_shm_transport(ShmEnd end, ShmSegment segment, Fd session, Fd room,
                                              ShmParts parts, const ShmOptions& options) {
  const bool server = end == ShmEnd::kServer;
  const RingMemory out = server ? segment.to_client() : segment.to_server();
  const RingMemory in = server ? segment.to_server() : segment.to_client();
  return std::make_unique<ShmTransport>(out, in, std::move(segment), std::move(session),
                                        std::move(room), std::move(parts), options);
}

}  // namespace fargpu::transport
