#include "common/transport/link/link_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/host/thread.h"
#include "common/transport/commit_check.h"
#include "common/transport/poll.h"
#include "common/transport/room_waits.h"
#include "common/transport/spin.h"

namespace fargpu::transport {
namespace {

// A frame that passes within this time is sent by the caller: handing it over would take longer.
constexpr auto kDirect = std::chrono::microseconds(3);
constexpr auto kFinish = std::chrono::milliseconds(200);
// From so many bytes on the time that the inner transport takes counts beside a fast link's.
constexpr uint64_t kLargeBytes = 1 << 20;

}  // namespace

LinkSender::LinkSender(Transport& inner, const LinkSettings& settings, std::shared_ptr<LinkWay> way)
    : inner_(inner),
      way_(std::move(way)),
      connection_(way_->join()),
      cost_(settings),
      backlog_(LinkWay::length(cost_.without_jitter(kBacklogBytes))) {
  thread_ = Thread([this] { run(); });
}

LinkSender::~LinkSender() {
  finish();
  thread_.join();
}

bool LinkSender::wait_for_room(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  bool counted = false;
  while (!stop_ && failed_.ok() && queue_.bytes() > kBacklogBytes) {
    const auto now = Clock::now();
    auto until = kNoDeadline;
    if (queue_.bytes() <= kMostQueuedBytes) until = due(last_place_ - backlog_, now);
    if (until <= now) return true;
    if (now >= deadline) return false;
    if (!std::exchange(counted, true)) ++room_waits;
    until = std::min<Deadline>(until, deadline);
    if (until == kNoDeadline) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, until);
    }
  }
  return true;
}

Result<std::span<std::byte>> LinkSender::reserve(size_t bytes, Deadline deadline) {
  if (bytes > inner_.capabilities().max_slot_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a frame of {} bytes is larger than {}", bytes,
                              inner_.capabilities().max_slot_bytes));
  }
  {
    std::unique_lock lock(mutex_);
    const bool room = wait_for_room(lock, deadline);
    if (!failed_.ok()) return failed_;
    if (!room) return Status(StatusCode::kTimeout, "the emulated link is full");
  }
  slot_bytes_ = bytes;
  return slot_.resize(bytes);
}

Status LinkSender::commit(size_t bytes_of_frame, std::span<const Bytes> bulk, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const uint64_t bulk_bytes,
                          check_commit(slot_.span().first(slot_bytes_), bytes_of_frame, bulk));
  const Bytes frame = slot_.span().first(bytes_of_frame);
  slot_bytes_ = 0;
  const auto now = Clock::now();
  const int64_t place = way_->add(connection_, cost_.of(frame.size() + bulk_bytes), now);
  last_place_ = place;
  frames.add(1);
  bytes.add(frame.size() + bulk_bytes);
  std::unique_lock lock(mutex_);
  if (!failed_.ok()) return failed_;
  const bool idle = queue_.empty() && !sending_;
  lock.unlock();
  // Only this thread puts frames into the queue, so the link's thread stays idle meanwhile.
  if (idle && due(place, now) - now <= kDirect) {
    Status sent = send_directly(frame, bulk, deadline);
    if (sent.code() != StatusCode::kTimeout) return sent;
  }
  return enqueue(frame, bulk, place, deadline);
}

// kTimeout: the peer takes nothing now, and nothing was sent.
Status LinkSender::send_directly(Bytes frame, std::span<const Bytes> bulk, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const auto slot, inner_.reserve(frame.size(), Clock::now()));
  std::memcpy(slot.data(), frame.data(), frame.size());
  Status status = inner_.commit(frame.size(), bulk, deadline);
  if (status.code() != StatusCode::kTimeout) return status;
  return Status(StatusCode::kLost, status.message());
}

Status LinkSender::enqueue(Bytes frame, std::span<const Bytes> bulk, int64_t place,
                           Deadline deadline) {
  std::unique_lock lock(mutex_);
  LinkFrame& queued = queue_.next();
  std::memcpy(&queued.header, frame.data(), sizeof queued.header);
  std::byte* end = queue_.next_bulk(queued.header.bulk_bytes).data();
  lock.unlock();  // the queue's next entry stays in place, and only this thread fills it
  const Bytes body = frame.subspan(sizeof queued.header);
  if (!body.empty()) std::memcpy(queued.body.resize(body.size()).data(), body.data(), body.size());
  for (const Bytes& piece : bulk) {
    if (!piece.empty()) std::memcpy(end, piece.data(), piece.size());
    end += piece.size();
  }
  queued.place = place;
  lock.lock();
  queue_.push();
  changed_.notify_all();
  // The frame is copied; this wait only bounds the backlog. For small frames reserve() does.
  if (!bulk.empty()) (void)wait_for_room(lock, deadline);
  return failed_;
}

Status LinkSender::flush(Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    if (!failed_.ok()) return failed_;
    if (!queue_.empty() || sending_) return Status();  // the link's thread does it
  }
  return inner_.flush(deadline);
}

bool LinkSender::set_aside() {
  {
    std::lock_guard lock(mutex_);
    if (!failed_.ok() || !queue_.empty() || sending_) return false;
  }
  return inner_.set_aside();
}

Status LinkSender::send(LinkFrame& frame, Deadline deadline) {
  const size_t frame_bytes = sizeof frame.header + frame.header.body_bytes;
  FARGPU_ASSIGN_OR_RETURN(const auto slot, inner_.reserve(frame_bytes, deadline));
  std::memcpy(slot.data(), &frame.header, sizeof frame.header);
  if (frame.header.body_bytes > 0) {
    std::memcpy(slot.data() + sizeof frame.header, frame.body.span().data(),
                frame.header.body_bytes);
  }
  const Bytes bulk = frame.bulk.span();
  return inner_.commit(frame_bytes, std::span(&bulk, bulk.empty() ? 0 : 1), deadline);
}

Clock::duration LinkSender::head_start(const LinkFrame& frame) const {
  if (frame.header.bulk_bytes < kLargeBytes) return {};
  return Clock::duration(static_cast<int64_t>(static_cast<double>(frame.bytes()) * fastest_));
}

void LinkSender::took(const LinkFrame& frame, Clock::duration time) {
  if (frame.header.bulk_bytes < kLargeBytes) return;
  const double each = static_cast<double>(time.count()) / static_cast<double>(frame.bytes());
  fastest_ = fastest_ == 0 ? each : std::min(fastest_, each);
}

void LinkSender::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty() || !failed_.ok()) break;
    const auto now = Clock::now();
    const auto until = due(queue_.front().place, now) - head_start(queue_.front());
    if (until > now && !stop_) {
      if (until - now > kLinkSpin) {
        changed_.wait_until(lock, until - kLinkSpin, [this] { return stop_; });
        continue;
      }
      lock.unlock();
      while (Clock::now() < until) relax();
      lock.lock();
      continue;
    }
    sending_ = true;
    LinkFrame& frame = queue_.front();
    const Deadline deadline = stop_ ? now + kFinish / 2 : kNoDeadline;
    lock.unlock();
    Status status = send(frame, deadline);
    took(frame, Clock::now() - now);
    lock.lock();
    queue_.pop();
    const bool more_at_once = !queue_.empty() && due(queue_.front().place, now) <= now;
    if (status.ok() && !more_at_once) {
      lock.unlock();
      status = inner_.flush(deadline);
      lock.lock();
    }
    sending_ = false;
    if (!status.ok() && failed_.ok()) failed_ = Status(StatusCode::kLost, status.message());
    changed_.notify_all();
  }
  if (failed_.ok()) failed_ = Status(StatusCode::kLost, "the connection was closed on this side");
  changed_.notify_all();
}

void LinkSender::finish() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kFinish, [this] { return !failed_.ok(); });
}

}  // namespace fargpu::transport
