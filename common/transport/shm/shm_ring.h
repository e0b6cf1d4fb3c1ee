// One direction of a shared-memory transport: a ring of bytes between one producer and one
// consumer, which may be hostile to each other.
//
// RingControl and the data lie in memory that both processes can write at any time. So every shared
// word is read once into a local and checked there. An end trusts only its own private position.
// Every byte is copied out of the ring before it is used: nothing is ever read twice. A peer that
// writes rubbish can only corrupt bytes that it sends, or it is detected here.
//
// Positions count bytes from the beginning and never wrap (2^64 bytes are centuries); position
// modulo capacity is the place.
//
// Who pairs with whom:
//   tail               release by the producer after the bytes; acquire by the consumer before it
//                      copies them.
//   head               seq_cst by the consumer after it copied; acquire by the producer before it
//                      overwrites them.
//   consumer_sleeps    consumer: store 1, then load tail (both seq_cst);
//                      producer: store tail, full fence, load consumer_sleeps.
//                      So either the consumer sees the bytes, or the producer sees that it must
//                      ring. Both set it back to 0 by exchange. If the producer wins, it rings,
//                      once. If the consumer wins, it has seen the bytes and needs no bell.
//   producer_wants     producer: store the head it waits for, then load head (both seq_cst);
//                      consumer: store head, then load producer_wants (both seq_cst).
//                      As above, with the parts exchanged.
//   descriptors_taken  release by the consumer, acquire by the producer; only a count, no data
//                      behind it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/wire/frame.h"

namespace fargpu::transport {

// Each word has lines of its own (two, because processors fetch them in pairs): the ends would
// disturb each other otherwise.
struct RingControl {
  alignas(128) std::atomic<uint64_t> tail;             // bytes that the producer has written
  alignas(128) std::atomic<uint64_t> head;             // bytes that the consumer has taken
  alignas(128) std::atomic<uint32_t> consumer_sleeps;  // not 0: ring after writing
  alignas(128) std::atomic<uint64_t> producer_wants;   // not 0: ring when head gets there
  alignas(128) std::atomic<uint64_t> descriptors_taken;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  size_t capacity = 0;  // a power of two
};

// The sending side of Transport uses it, one thread at a time.
class RingProducer {
 public:
  explicit RingProducer(RingMemory memory) : ring_(memory) {}

  size_t capacity() const { return ring_.capacity; }
  size_t free() const { return ring_.capacity - static_cast<size_t>(written_ - seen_head_); }
  // Looks how far the consumer is. False: head cannot be true, the peer is broken.
  bool refresh();
  // Copies as much of `bytes` as fits; how much that was. Not visible before publish().
  size_t write(std::span<const std::byte> bytes);
  // Both, one behind the other; they must fit (free()). Not visible before publish().
  void write(const wire::FrameHeader& header, std::span<const std::byte> body);
  void publish() { ring_.control->tail.store(written_, std::memory_order_release); }
  uint64_t written() const { return written_; }
  // After publish(). True: the consumer sleeps, and this caller must ring.
  bool must_ring();
  // After publish(). False: the consumer will see the published bytes without a bell.
  bool consumer_sleeps() const;
  // Before sleeping until `room` bytes are free (at most the capacity). The caller looks again
  // (refresh) before it sleeps.
  void announce_wait(size_t room);
  void end_wait() { ring_.control->producer_wants.store(0, std::memory_order_relaxed); }
  uint64_t descriptors_taken() const {
    return ring_.control->descriptors_taken.load(std::memory_order_acquire);
  }

 private:
  const RingMemory ring_;
  uint64_t written_ = 0;    // ours; tail follows it
  uint64_t seen_head_ = 0;  // as last read, and found possible
};

// The receiving side of Transport uses it, one thread at a time.
class RingConsumer {
 public:
  explicit RingConsumer(RingMemory memory) : ring_(memory) {}

  size_t capacity() const { return ring_.capacity; }
  // Bytes that can be read, as known since the last refresh().
  size_t available() const { return static_cast<size_t>(seen_tail_ - taken_); }
  // False: tail cannot be true, the peer is broken.
  bool refresh();
  // A look without taking anything in: is there more than has been read?
  bool anything_new() const {
    return ring_.control->tail.load(std::memory_order_relaxed) != taken_;
  }
  // Copies `room.size()` bytes, at most available(), out of the ring.
  void read(std::span<std::byte> room);
  size_t unpublished() const { return static_cast<size_t>(taken_ - published_); }
  // Gives back the space of the bytes that were read. True: the producer waits for it, and this
  // caller must ring.
  bool publish();
  // Before sleeping. False: there is something to read, do not sleep.
  bool announce_sleep();
  // False: the producer has rung, or is about to.
  bool end_sleep() {
    return ring_.control->consumer_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
  }
  void set_descriptors_taken(uint64_t count) {
    ring_.control->descriptors_taken.store(count, std::memory_order_release);
  }

 private:
  const RingMemory ring_;
  uint64_t taken_ = 0;  // ours; head follows it
  uint64_t published_ = 0;
  uint64_t seen_tail_ = 0;  // as last read, and found possible
};

}  // namespace fargpu::transport
