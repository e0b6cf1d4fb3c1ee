#include "common/transport/loopback/loopback.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "common/base/address_check.h"
#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/transport/commit_check.h"

namespace fargpu::transport {
namespace {

struct Message {
  std::vector<std::byte> head;  // header and body
  std::vector<std::byte> bulk;
  Clock::time_point arrives{};
  bool truncated = false;
  size_t size() const { return head.size() + bulk.size(); }
};

// One direction. Guarded by its mutex; the receiver takes messages out and gives their memory back.
struct Queue {
  std::mutex mutex;
  std::condition_variable arrived, room;
  std::deque<Message> messages;
  std::vector<Message> spare;
  size_t bytes = 0;
  bool woken = false;  // the receiver's wake()
  // by either end; what was sent before still arrives unless the receiver itself closed
  bool closed = false;
  std::string why_closed;
  EventFd event;  // signalled while messages, woken or closed say so; drained by the receiver

  explicit Queue(EventFd made) : event(std::move(made)) {}
};

void close_queue(Queue& queue, bool forget, const std::string& why) {
  std::lock_guard lock(queue.mutex);
  if (!queue.closed) queue.why_closed = why;
  queue.closed = true;
  if (forget) queue.messages.clear();
  queue.arrived.notify_all();
  queue.room.notify_all();
  queue.event.signal();
}

template <typename Condition>
bool wait_until(std::condition_variable& variable, std::unique_lock<std::mutex>& lock,
                Deadline deadline, Condition condition) {
  if (deadline != kNoDeadline) return variable.wait_until(lock, deadline, condition);
  variable.wait(lock, condition);
  return true;
}

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Queue> out, std::shared_ptr<Queue> in,
                    const LoopbackOptions& options, LoopbackFaults faults)
      : out_(std::move(out)),
        in_(std::move(in)),
        limits_(options.limits),
        queue_bytes_(options.queue_bytes),
        with_descriptor_(options.with_descriptor),
        faults_(std::move(faults)),
        slot_((sizeof(wire::FrameHeader) + limits_.max_body_bytes + 7) / 8) {}
  ~LoopbackTransport() override { close(); }

  Capabilities capabilities() const override {
    return {.name = "loopback",
            .max_slot_bytes = sizeof(wire::FrameHeader) + limits_.max_body_bytes};
  }

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) override {
    if (bytes > capabilities().max_slot_bytes) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a frame of {} bytes is larger than {}", bytes,
                                capabilities().max_slot_bytes));
    }
    FARGPU_RETURN_IF_ERROR(wait_for_room(deadline));
    reserved_ = bytes;
    return std::as_writable_bytes(std::span(slot_)).first(bytes);
  }

  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) override {
    FARGPU_RETURN_IF_ERROR(
        check_commit(std::as_bytes(std::span(slot_)).first(reserved_), bytes, bulk).status());
    reserved_ = 0;
    FARGPU_RETURN_IF_ERROR(wait_for_room(deadline));
    ++sent_;
    if (sent_ == faults_.drop_at_frame) {
      close_queue(*out_, false, "the connection was dropped");
      close_queue(*in_, false, "the connection was dropped");
      return Status(StatusCode::kLost, "the connection was dropped");
    }
    std::unique_lock lock(out_->mutex);
    Message message;
    if (!out_->spare.empty()) {
      message = std::move(out_->spare.back());
      out_->spare.pop_back();
    }
    lock.unlock();
    const auto head = std::as_writable_bytes(std::span(slot_)).first(bytes);
    if (faults_.tamper) faults_.tamper(head);
    message.head.assign(head.begin(), head.end());
    message.bulk.clear();
    for (const Bytes& piece : bulk)
      message.bulk.insert(message.bulk.end(), piece.begin(), piece.end());
    message.arrives =
        faults_.delay.count() > 0 ? Clock::now() + faults_.delay : Clock::time_point{};
    message.truncated = sent_ == faults_.truncate_at_frame;
    const size_t size = message.size();
    lock.lock();
    if (out_->closed) return lost(*out_);
    out_->bytes += size;
    out_->messages.push_back(std::move(message));
    out_->arrived.notify_one();
    if (with_descriptor_) out_->event.signal();
    lock.unlock();
    frames_sent_.fetch_add(1, std::memory_order_relaxed);
    bytes_sent_.fetch_add(size, std::memory_order_relaxed);
    return Status();
  }

  Status flush(Deadline) override {
    std::lock_guard lock(out_->mutex);
    return out_->closed ? lost(*out_) : Status();
  }

  Result<size_t> receive(FrameHandler& handler, Deadline deadline) override {
    size_t delivered = 0;
    std::unique_lock lock(in_->mutex);
    for (;;) {
      const auto ready = [&] { return !in_->messages.empty() || in_->woken || in_->closed; };
      if (delivered == 0 && !wait_until(in_->arrived, lock, deadline, ready)) return size_t{0};
      if (with_descriptor_) in_->event.drain();
      if (delivered == 0 && in_->woken) {
        in_->woken = false;
        signal_if_more();
        return size_t{0};
      }
      if (in_->messages.empty()) {
        signal_if_more();
        if (delivered > 0) return delivered;
        return lost(*in_);
      }
      if (const auto arrives = in_->messages.front().arrives; arrives > Clock::now()) {
        if (delivered > 0 || deadline <= Clock::now()) {
          signal_if_more();
          return delivered;
        }
        in_->arrived.wait_until(lock, std::min(arrives, deadline),
                                [&] { return in_->woken || in_->messages.empty(); });
        continue;
      }
      Message message = std::move(in_->messages.front());
      in_->messages.pop_front();
      lock.unlock();
      Status status = deliver(handler, message);
      lock.lock();
      in_->bytes -= message.size();
      in_->room.notify_one();
      if (in_->spare.size() < 64) in_->spare.push_back(std::move(message));
      if (!status.ok()) {
        lock.unlock();
        close_both(status.message(), status.message());
        return status;
      }
      ++delivered;
    }
  }

  void wake() override {
    std::lock_guard lock(in_->mutex);
    in_->woken = true;
    in_->arrived.notify_all();
    in_->event.signal();
  }
  int poll_descriptor() const override { return with_descriptor_ ? in_->event.get() : -1; }

  void close() override {
    close_both("the connection was closed on this side", "the peer closed the connection");
  }
  // Nothing is shared with another process; the copies in the child are the child's.
  void abandon_after_fork() override {}

  Statistics statistics() const override {
    return {frames_sent_.load(std::memory_order_relaxed),
            frames_received_.load(std::memory_order_relaxed),
            bytes_sent_.load(std::memory_order_relaxed),
            bytes_received_.load(std::memory_order_relaxed), 0};
  }
  std::string describe() const override { return "loopback"; }

 private:
  static Status lost(const Queue& queue) { return Status(StatusCode::kLost, queue.why_closed); }

  Status wait_for_room(Deadline deadline) {
    std::unique_lock lock(out_->mutex);
    const bool room = wait_until(out_->room, lock, deadline,
                                 [&] { return out_->closed || out_->bytes < queue_bytes_; });
    if (out_->closed) return lost(*out_);
    return room ? Status() : Status(StatusCode::kTimeout, "the peer took no more data in time");
  }

  // With the lock held: the event must stay signalled while there is something to do.
  void signal_if_more() {
    if (!in_->messages.empty() || in_->woken || in_->closed) in_->event.signal();
  }

  Status deliver(FrameHandler& handler, Message& message) {
    if (message.truncated) {
      return Status(StatusCode::kLost, "the peer closed the connection in the middle of a frame");
    }
    wire::FrameHeader header;
    std::memcpy(&header, message.head.data(), sizeof header);
    FARGPU_RETURN_IF_ERROR(wire::check_header(header, limits_));
    if (sizeof header + header.body_bytes != message.head.size() ||
        header.bulk_bytes != message.bulk.size()) {
      return Status(StatusCode::kProtocol, "a frame's lengths do not match its header");
    }
    const Bytes body = Bytes(message.head).subspan(sizeof header);
    std::span<std::byte> bulk;
    if (header.bulk_bytes > 0) {
      FARGPU_ASSIGN_OR_RETURN(bulk, handler.bulk_buffer(header, body));
      if (bulk.size() != header.bulk_bytes) {
        return Status(StatusCode::kProtocol,
                      fmt::format("no room for the {} bytes of bulk data of opcode {}",
                                  header.bulk_bytes, header.opcode));
      }
      std::memcpy(bulk.data(), message.bulk.data(), bulk.size());
    }
    const address_check::OnlyPart only_body(body, {message.head.data(), message.head.capacity()});
    frames_received_.fetch_add(1, std::memory_order_relaxed);
    bytes_received_.fetch_add(message.size(), std::memory_order_relaxed);
    return handler.on_frame(header, body, bulk);
  }

  void close_both(const std::string& why_here, const std::string& why_there) {
    close_queue(*out_, false, why_there);
    close_queue(*in_, true, why_here);
  }

  const std::shared_ptr<Queue> out_, in_;
  const wire::FrameLimits limits_;
  const size_t queue_bytes_;
  const bool with_descriptor_;
  const LoopbackFaults faults_;
  std::vector<uint64_t> slot_;
  size_t reserved_ = 0;
  uint64_t sent_ = 0;
  std::atomic<uint64_t> frames_sent_{0}, frames_received_{0}, bytes_sent_{0}, bytes_received_{0};
};

}  // namespace

std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> make_loopback_pair(
    const LoopbackOptions& options) {
  auto first_event = EventFd::create();
  auto second_event = EventFd::create();
  FARGPU_CHECK(first_event.ok() && second_event.ok());
  auto forth = std::make_shared<Queue>(std::move(*first_event));
  auto back = std::make_shared<Queue>(std::move(*second_event));
  return {std::make_unique<LoopbackTransport>(forth, back, options, options.first_faults),
          std::make_unique<LoopbackTransport>(back, forth, options, options.second_faults)};
}

}  // namespace fargpu::transport
