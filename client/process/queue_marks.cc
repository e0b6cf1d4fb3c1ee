#include "client/process/queue_marks.h"

#include <utility>

#include "generated/client/wire/internal.h"

namespace fargpu::client {

uint64_t QueueMarks::add(std::shared_ptr<StreamQueue> queue, uint32_t position) {
  std::lock_guard lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  marks_.emplace(ticket, Mark{std::move(queue), position});
  return ticket;
}

void QueueMarks::ask(uint64_t ticket, const Stream& stream) {
  if (wire::fgQueueMark(link_, stream.context, stream.id, ticket) != CUDA_SUCCESS) reached(ticket);
}

bool QueueMarks::wait_until(const std::function<bool()>& seen) {
  (void)link_.channel().flush();
  return link_.channel().read_until(seen, transport::kNoDeadline);
}

void QueueMarks::wait(const std::shared_ptr<StreamQueue>& queue, uint32_t position, uint32_t places,
                      const Stream& stream) {
  uint32_t sent = position - places;  // what a mark covers
  const uint32_t covered = queue->covered_position();
  if (StreamQueue::distance(covered, sent) > 0) sent = covered;
  uint64_t ticket = 0;
  {
    std::lock_guard lock(queue->mutex_);
    const uint32_t marked = queue->marked_;
    if (StreamQueue::distance(marked, position) > int32_t{StreamQueue::kStep} &&
        StreamQueue::distance(marked, sent) > 0) {
      queue->marked_ = sent;
      ticket = add(queue, sent);
    }
  }
  if (ticket != 0) ask(ticket, stream);
  if (!queue->has_place(position)) wait_until([&] { return queue->has_place(position); });
  std::lock_guard lock(queue->mutex_);
  queue->set_limit();
  // No mark in between: it would count what is not sent yet as reached.
  if (places > 1) queue->raise_limit(position);
}

void QueueMarks::follow(const std::shared_ptr<StreamQueue>& queue, const Stream& stream) {
  uint64_t ticket = 0;
  {
    std::lock_guard lock(queue->mutex_);
    queue->catch_up();
    const uint32_t sent = queue->covered_position();
    if (StreamQueue::distance(queue->marked_, sent) <= 0) return;
    queue->marked_ = sent;
    ticket = add(queue, sent);
  }
  ask(ticket, stream);
}

std::shared_ptr<StreamQueue> QueueMarks::set(const Stream& stream) {
  auto queue = std::make_shared<StreamQueue>();
  ask(add(queue, 1), stream);
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
