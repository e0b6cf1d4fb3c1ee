#include "common/transport/link/emulated_link.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "common/base/check.h"
#include "common/base/descriptors.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/transport/link/link_sender.h"
#include "common/transport/loss.h"
#include "common/transport/spin.h"

namespace fargpu::transport {
namespace {

// Frames that arrive faster than the link carries them are delayed here, up to this many bytes;
// beyond that they stay in the inner transport.
constexpr size_t kMostDelayedBytes = 64 << 20;

// Takes frames in and notes when they are due.
class DelayQueue final : public FrameHandler {
 public:
  explicit DelayQueue(const LinkSettings& settings) : rtt_(settings.rtt), schedule_(settings) {}

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    begun_ = Clock::now();
    has_begun_ = true;
    return queue.next_bulk(header.bulk_bytes);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte>) override {
    const auto now = Clock::now();
    LinkFrame& frame = queue.next();
    frame.header = header;
    if (!body.empty()) std::memcpy(frame.body.resize(body.size()).data(), body.data(), body.size());
    const auto passed =
        schedule_.pass(frame.bytes(), std::exchange(has_begun_, false) ? begun_ : now);
    frame.due = std::max(passed, now) + rtt_;
    queue.push();
    return Status();
  }

  LinkQueue queue;

 private:
  const std::chrono::nanoseconds rtt_;
  LinkSchedule schedule_;
  Clock::time_point begun_{};  // when the first byte of a frame with bulk was seen
  bool has_begun_ = false;
};

class EmulatedLink final : public Transport {
 public:
  EmulatedLink(std::unique_ptr<Transport> inner, const LinkSettings& settings,
               std::shared_ptr<LinkWay> way, Fd timer, Fd poller)
      : inner_(std::move(inner)),
        name_(fmt::format("{}, emulated link {}", inner_->describe(), settings.to_string())),
        timer_(std::move(timer)),
        poller_(std::move(poller)),
        delayed_(settings),
        sender_(*inner_, settings, std::move(way)) {}
  ~EmulatedLink() override { close(); }

  Capabilities capabilities() const override {
    const Capabilities inner = inner_->capabilities();
    return {.name = inner.name,
            .max_slot_bytes = inner.max_slot_bytes,
            .sends_aside = inner.sends_aside,
            .crosses_network = true,
            .survives_peer_death = inner.survives_peer_death};
  }

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    return sender_.reserve(bytes, deadline);
  }
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    return sender_.commit(bytes, bulk, deadline);
  }
  Status flush(Deadline deadline) override {
    if (loss_.happened()) return loss_.status();
    return sender_.flush(deadline);
  }
  bool set_aside() override { return !loss_.happened() && sender_.set_aside(); }
  Status send_aside() override { return loss_.happened() ? loss_.status() : inner_->send_aside(); }

  Result<size_t> receive(FrameHandler& handler, Deadline deadline) override {
    if (std::exchange(timer_set_, false)) set_timer({});
    for (;;) {
      if (loss_.happened()) return loss_.status();
      take_in(Clock::now());
      auto delivered = deliver_due(handler);
      if (!delivered.ok()) return lose(delivered.status());
      if (*delivered > 0) return delivered;
      LinkQueue& queue = delayed_.queue;
      if (queue.empty() && !inner_end_.ok()) return lose(inner_end_);
      if (woken_.exchange(false)) return size_t{0};
      const auto now = Clock::now();
      if (now >= deadline) return size_t{0};
      Deadline until = deadline;
      if (!queue.empty()) {
        if (Status status = place_bulk(handler); !status.ok()) return lose(std::move(status));
        until = std::min(deadline, queue.front().due - kLinkSpin);
      }
      if (until <= now) {
        relax();
      } else if (may_take_in()) {
        take_in(until);
      } else {
        // Only wake() and close() can end this wait; both are checked often enough.
        std::this_thread::sleep_for(
            std::min<Clock::duration>(until - now, std::chrono::milliseconds(1)));
      }
    }
  }

  void wake() override {
    woken_.store(true);
    inner_->wake();
  }
  int poll_descriptor() const override { return poller_.get(); }
  bool arm() override {
    if (loss_.happened()) return false;
    const LinkQueue& queue = delayed_.queue;
    if (queue.empty()) return inner_end_.ok() && inner_->arm();
    const auto left = delayed_.queue.front().due - Clock::now();
    if (left <= Clock::duration::zero() || (may_take_in() && !inner_->arm())) return false;
    set_timer(left);
    return timer_set_ = true;
  }

  void close() override {
    sender_.finish();
    (void)lose(Status(StatusCode::kLost, "the connection was closed on this side"));
  }
  void abandon_after_fork() override {
    loss_.abandon();
    inner_->abandon_after_fork();
    timer_.reset();
    poller_.reset();
  }

  Statistics statistics() const override {
    return {sender_.frames.get(), frames_received_.get(), sender_.bytes.get(),
            bytes_received_.get(), inner_->statistics().system_calls};
  }
  std::string describe() const override { return name_; }

 private:
  Status lose(Status why) {
    return loss_.record(std::move(why), [this] { inner_->close(); });
  }

  bool may_take_in() const { return inner_end_.ok() && delayed_.queue.bytes() < kMostDelayedBytes; }
  void take_in(Deadline until) {
    if (!may_take_in()) return;
    inner_end_ = inner_->receive(delayed_, until).status();
  }

  // Fills the handler's memory for the bulk of the next frame before the frame is due.
  Status place_bulk(FrameHandler& handler) {
    LinkFrame& frame = delayed_.queue.front();
    if (frame.header.bulk_bytes == 0 || bulk_placed_) return Status();
    FARGPU_ASSIGN_OR_RETURN(placed_bulk_, handler.bulk_buffer(frame.header, frame.body.span()));
    if (placed_bulk_.size() != frame.header.bulk_bytes) {
      return Status(StatusCode::kProtocol,
                    fmt::format("no room for the {} bytes of bulk data of opcode {}",
                                frame.header.bulk_bytes, frame.header.opcode));
    }
    std::memcpy(placed_bulk_.data(), frame.bulk.span().data(), placed_bulk_.size());
    bulk_placed_ = true;
    return Status();
  }

  Result<size_t> deliver_due(FrameHandler& handler) {
    size_t delivered = 0;
    LinkQueue& queue = delayed_.queue;
    while (!queue.empty() && queue.front().due <= Clock::now()) {
      FARGPU_RETURN_IF_ERROR(place_bulk(handler));
      LinkFrame& frame = queue.front();
      bulk_placed_ = false;
      frames_received_.add(1);
      bytes_received_.add(frame.bytes());
      Status status =
          handler.on_frame(frame.header, frame.body.span(), std::exchange(placed_bulk_, {}));
      queue.pop();
      FARGPU_RETURN_IF_ERROR(status);
      ++delivered;
    }
    return delivered;
  }

  void set_timer(Clock::duration left) {
    itimerspec time{};
    time.it_value.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count();
    time.it_value.tv_nsec = (left - std::chrono::floor<std::chrono::seconds>(left)).count();
    ::timerfd_settime(timer_.get(), 0, &time, nullptr);
  }

  const std::unique_ptr<Transport> inner_;
  const std::string name_;
  Fd timer_,
      poller_;  // epoll over the timer and the inner transport; -1 when that has no descriptor
  // These belong to the receiving thread.
  DelayQueue delayed_;
  Status inner_end_;
  bool bulk_placed_ = false, timer_set_ = false;
  std::span<std::byte> placed_bulk_;
  Counter frames_received_, bytes_received_;

  std::atomic<bool> woken_{false};
  Loss loss_;
  LinkSender sender_;  // its thread uses inner_, so it is destroyed first
};

}  // namespace

std::unique_ptr<Transport> emulate_link(std::unique_ptr<Transport> transport,
                                        const LinkSettings& settings,
                                        std::shared_ptr<LinkWay> way) {
  Fd timer = descriptors::make(
      [] { return ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
  Fd poller;
  FARGPU_CHECK(timer.valid());
  if (transport->poll_descriptor() >= 0) {
    poller = descriptors::make([] { return ::epoll_create1(EPOLL_CLOEXEC); });
    FARGPU_CHECK(poller.valid());
    for (int descriptor : {transport->poll_descriptor(), timer.get()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      FARGPU_CHECK(::epoll_ctl(poller.get(), EPOLL_CTL_ADD, descriptor, &event) == 0);
    }
  }
  return std::make_unique<EmulatedLink>(std::move(transport), settings, std::move(way),
                                        std::move(timer), std::move(poller));
}

}  // namespace fargpu::transport
