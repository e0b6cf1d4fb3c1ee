#include "client/stream/stream_queue.h"

#include <algorithm>

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

void StreamQueue::set_limit() {
  const uint32_t room = reached_.load(std::memory_order_acquire) + kMost;
  const uint32_t next_mark = marked_ + kStep;
  limit_.store(distance(next_mark, room) < 0 ? room : next_mark, std::memory_order_relaxed);
}

void StreamQueue::raise_limit(uint32_t position) {
  if (distance(limit_.load(std::memory_order_relaxed), position) > 0)
    limit_.store(position, std::memory_order_relaxed);
}

void QueueMarks::wait(const std::shared_ptr<StreamQueue>& queue, uint32_t position, uint32_t places,
                      Worker& worker) {
  const uint32_t sent = position - places;  // what a mark covers
  uint64_t ticket = 0;
  {
    std::lock_guard lock(queue->mutex_);
    const uint32_t marked = queue->marked_;
    if (StreamQueue::distance(marked, position) > int32_t{StreamQueue::kStep} &&
        StreamQueue::distance(marked, sent) > 0) {
      queue->marked_ = sent;
      std::lock_guard marks_lock(mutex_);
      ticket = next_ticket_++;
      marks_.emplace(ticket, Mark{queue, sent});
    }
  }
  if (ticket != 0 && !worker.ask(ticket)) reached(ticket);
  if (!queue->has_place(position)) worker.wait([&] { return queue->has_place(position); });
  std::lock_guard lock(queue->mutex_);
  queue->set_limit();
  // No mark in between: it would count what is not sent yet as reached.
  if (places > 1) queue->raise_limit(position);
}

std::shared_ptr<StreamQueue> QueueMarks::set(Worker& worker) {
  auto queue = std::make_shared<StreamQueue>();
  uint64_t ticket = 0;
  {
    std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    marks_.emplace(ticket, Mark{queue, 1});
  }
  if (!worker.ask(ticket)) reached(ticket);
  return queue;
}

void QueueMarks::reached(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  const auto found = marks_.find(ticket);
  if (found == marks_.end()) return;
  const auto [queue, position] = std::move(found->second);
  marks_.erase(found);
  std::lock_guard queue_lock(queue->reach_mutex_);
  queue->reach(position);
}

}  // namespace fargpu::client
