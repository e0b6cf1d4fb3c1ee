#include "client/stream/stream_queue.h"

namespace fargpu::client {

void StreamQueue::done(uint32_t position) {
  std::lock_guard lock(mutex_);
  {
    std::lock_guard reach_lock(reach_mutex_);
    reach(position);
  }
  if (distance(marked_, position) > 0) marked_ = position;
  set_limit();
}

// Marks of one stream are reached in order, except those of a context that fails.
void StreamQueue::reach(uint32_t position) {
  const uint32_t before = reached_.load(std::memory_order_relaxed);
  if (distance(before, position) > 0) reached_.store(position, std::memory_order_release);
}

// A thread that was interrupted while it counted inexactly sets back what others counted meanwhile.
// One more, since there may be work.
void StreamQueue::catch_up() {
  uint32_t known = reached_.load(std::memory_order_acquire);
  if (distance(known, marked_) > 0) known = marked_;
  const int32_t behind = distance(position(), known);
  if (behind > 0) sent_.fetch_add(static_cast<uint32_t>(behind) + 1, std::memory_order_acq_rel);
}

void StreamQueue::set_limit() {
  const uint32_t room = reached_.load(std::memory_order_acquire) + kMost;
  const uint32_t next_mark = marked_ + kStep;
  limit_.store(distance(next_mark, room) < 0 ? room : next_mark, std::memory_order_relaxed);
}

void StreamQueue::raise_limit(uint32_t position) {
  if (distance(limit_.load(std::memory_order_relaxed), position) > 0)
    limit_.store(position, std::memory_order_relaxed);
}

}  // namespace fargpu::client
