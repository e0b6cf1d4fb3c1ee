#include "common/rpc/landings.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "common/rpc/link_times.h"
#include "common/wire/control.h"

namespace fargpu::rpc {

// --- the connection of the calls ---

Status Landings::announce(uint32_t number) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t next = announced() + 1;
    if (number != static_cast<uint32_t>(next)) {
      return {StatusCode::kProtocol,
              fmt::format("the server announced delivery {} instead of {}", number, next)};
    }
    announced_.store(next, std::memory_order_relaxed);
  }
  changed_.notify_all();
  return {};
}

Status Landings::take(const wire::FrameHeader& header, Bytes body, Bytes bulk) {
  if (all_landed()) return handle(header, body, bulk);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return kept_bytes_ < kMostKeptBytes || ended_; });
  if (all_landed()) {
    lock.unlock();
    return handle(header, body, bulk);
  }
  kept_.push_back({header, {body.begin(), body.end()}, {bulk.begin(), bulk.end()}, announced()});
  kept_bytes_ += kept_.back().bytes();
  return {};
}

Status Landings::handle(const wire::FrameHeader& header, Bytes body, Bytes bulk) {
  if ((header.flags & wire::kNotice) == 0) {
    sink_.on_async_error(header.opcode, header.sequence, header.context, header.result);
    return {};
  }
  if (!bulk.empty()) {
    FARGPU_ASSIGN_OR_RETURN(const auto place, sink_.notice_buffer(header, body));
    if (!place.empty() && place.data() != bulk.data()) {
      std::memcpy(place.data(), bulk.data(), bulk.size());
      bulk = place;
    }
  }
  return sink_.on_notice(header, body, bulk);
}

bool Landings::wait(uint64_t number, transport::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [this, number] { return has_landed(number) || released_; };
  if (deadline == transport::kNoDeadline) {
    changed_.wait(lock, over);
  } else {
    changed_.wait_until(lock, deadline, over);
  }
  return has_landed(number);
}

// --- the bulk connection ---

Status Landings::check(const wire::FrameHeader& header) const {
  const uint64_t next = landed_.load(std::memory_order_relaxed) + 1;
  if (header.opcode == wire::kDelivery && header.flags == wire::kNotice &&
      header.sequence == static_cast<uint32_t>(next) && header.bulk_bytes > 0 &&
      header.bulk_bytes <= limits_.max_bulk_bytes)
    return {};
  return {StatusCode::kProtocol,
          fmt::format("the server sent a frame on the bulk connection that is not delivery {}: "
                      "opcode {}, flags {:#x}, sequence {}, {} bytes of bulk",
                      next, header.opcode, header.flags, header.sequence, header.bulk_bytes)};
}

Result<std::span<std::byte>> Landings::bulk_buffer(const wire::FrameHeader& header, Bytes body) {
  FARGPU_RETURN_IF_ERROR(check(header));
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !all_landed() || ended_; });
    if (ended_) return Status(StatusCode::kLost, "the session is over");
  }
  FARGPU_ASSIGN_OR_RETURN(const auto place, sink_.notice_buffer(header, body));
  if (!place.empty()) return place;
  memory_.resize(header.bulk_bytes);
  return std::span(memory_);
}

Status Landings::on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) {
  FARGPU_RETURN_IF_ERROR(check(header));
  if (link_times::counted())
    link_times::noticed(link_use_, sizeof header + body.size() + bulk.size());
  FARGPU_RETURN_IF_ERROR(sink_.on_notice(header, body, bulk));
  return land();
}

Status Landings::land() {
  std::unique_lock lock(mutex_);
  const uint64_t now = landed_.load(std::memory_order_relaxed) + 1;
  while (!kept_.empty() && kept_.front().behind <= now) {
    const Kept& kept = kept_.front();  // stays where it is while others are added
    lock.unlock();
    FARGPU_RETURN_IF_ERROR(handle(kept.header, kept.body, kept.bulk));
    lock.lock();
    kept_bytes_ -= kept.bytes();
    kept_.pop_front();
  }
  landed_.store(now, std::memory_order_release);
  lock.unlock();
  changed_.notify_all();
  landed_now_();
  return {};
}

// --- the end ---

void Landings::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void Landings::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void Landings::wait_for_stop(transport::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (deadline == transport::kNoDeadline) {
    changed_.wait(lock, [this] { return stopped_; });
  } else {
    changed_.wait_until(lock, deadline, [this] { return stopped_; });
  }
}

void Landings::drop_kept() {
  std::deque<Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    kept.swap(kept_);
  }
  for (const Kept& notice : kept) {
    if (notice.header.opcode == wire::kOutput || notice.header.opcode == wire::kErrorOutput)
      (void)handle(notice.header, notice.body, notice.bulk);
  }
}

void Landings::release() {
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
  }
  changed_.notify_all();
}

}  // namespace fargpu::rpc
