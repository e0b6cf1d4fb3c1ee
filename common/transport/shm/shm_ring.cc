#include "common/transport/shm/shm_ring.h"

#include <algorithm>
#include <cstring>

namespace fargpu::transport {
namespace {

// Store before load, also for stores and loads of different words.
void full_fence() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not follow fences; a read-modify-write orders as much on every machine it
  // runs on.
  static std::atomic<int> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

bool RingProducer::refresh() {
  const uint64_t head = ring_.control->head.load(std::memory_order_acquire);
  // head may neither pass what was written nor go back.
  if (head - seen_head_ > written_ - seen_head_) return false;
  seen_head_ = head;
  return true;
}

size_t RingProducer::write(std::span<const std::byte> bytes) {
  const size_t count = std::min(bytes.size(), free());
  if (count == 0) return 0;
  const size_t place = static_cast<size_t>(written_) & (ring_.capacity - 1);
  const size_t before_end = std::min(count, ring_.capacity - place);
  std::memcpy(ring_.data + place, bytes.data(), before_end);
  if (before_end < count) std::memcpy(ring_.data, bytes.data() + before_end, count - before_end);
  written_ += count;
  return count;
}

void RingProducer::write(const wire::FrameHeader& header, std::span<const std::byte> body) {
  const size_t place = static_cast<size_t>(written_) & (ring_.capacity - 1);
  if (ring_.capacity - place < sizeof header + body.size()) [[unlikely]] {
    write(std::as_bytes(std::span(&header, 1)));
    write(body);
    return;
  }
  std::memcpy(ring_.data + place, &header, sizeof header);
  if (!body.empty()) std::memcpy(ring_.data + place + sizeof header, body.data(), body.size());
  written_ += sizeof header + body.size();
}

bool RingProducer::consumer_sleeps() const {
  full_fence();
  return ring_.control->consumer_sleeps.load(std::memory_order_relaxed) != 0;
}

bool RingProducer::must_ring() {
  if (!consumer_sleeps()) return false;
  return ring_.control->consumer_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

void RingProducer::announce_wait(size_t room) {
  // 0 means that the producer does not wait. One that waits has written something, so the head that
  // it waits for is never 0.
  const uint64_t wanted = written_ + room - ring_.capacity;
  ring_.control->producer_wants.store(wanted, std::memory_order_seq_cst);
  full_fence();  // the refresh() that follows loads with acquire only
}

bool RingConsumer::refresh() {
  const uint64_t tail = ring_.control->tail.load(std::memory_order_acquire);
  if (tail - taken_ > ring_.capacity || tail - taken_ < seen_tail_ - taken_) return false;
  seen_tail_ = tail;
  return true;
}

void RingConsumer::read(std::span<std::byte> room) {
  if (room.empty()) return;
  const size_t place = static_cast<size_t>(taken_) & (ring_.capacity - 1);
  const size_t before_end = std::min(room.size(), ring_.capacity - place);
  std::memcpy(room.data(), ring_.data + place, before_end);
  if (before_end < room.size()) {
    std::memcpy(room.data() + before_end, ring_.data, room.size() - before_end);
  }
  taken_ += room.size();
}

bool RingConsumer::publish() {
  if (published_ == taken_) return false;
  published_ = taken_;
  ring_.control->head.store(taken_, std::memory_order_seq_cst);
  const uint64_t wanted = ring_.control->producer_wants.load(std::memory_order_seq_cst);
  if (wanted == 0 || static_cast<int64_t>(taken_ - wanted) < 0) return false;
  return ring_.control->producer_wants.exchange(0, std::memory_order_seq_cst) != 0;
}

bool RingConsumer::announce_sleep() {
  ring_.control->consumer_sleeps.store(1, std::memory_order_seq_cst);
  if (ring_.control->tail.load(std::memory_order_seq_cst) == taken_) return true;
  // A producer that saw it in between rings once needlessly.
  ring_.control->consumer_sleeps.store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace fargpu::transport
