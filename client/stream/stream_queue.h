// StreamQueue: how far the application may be ahead of the GPU in one stream.
//
// A driver's queue accepts about a thousand operations that have not begun (an H100 with driver
// 580: 1021). Then the submitting call waits. In the worker the waiting thread would be the
// executor, and every thread of the client would wait with it. So the thread that would submit more
// waits here, as it does natively, and stops no other thread. It also keeps one thread's backlog
// from delaying the calls of others for long. Every kStep operations the worker is asked to report
// when they are done (client/process/queue_marks.h).
//
// take() costs a comparison more than a count. Any thread; threads that use one stream at the same
// time may lose counts, unless all of them count exactly.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fargpu::client {

class StreamQueue {
 public:
  static constexpr uint32_t kMost = 960;
  static constexpr uint32_t kStep = 240;
  // Data that a driver copies into the queue counts by its bytes, too: parameters of launches, and
  // copies from ordinary memory up to 64 KiB. The whole queue has 4 MiB (seen on an H100 with
  // driver 580: 735 launches with 4000 bytes, 250 copies of 16 KiB, 63 of 64 KiB).
  static constexpr uint32_t kBytesOfPlace = 4300;
  static constexpr uint32_t kBytesOfLaunch = 1750, kBytesOfCopy = 200;  // beside those
  static constexpr uint32_t places_of(uint32_t bytes) {
    return (bytes + kBytesOfPlace - 1) / kBytesOfPlace;
  }

  StreamQueue() = default;
  // As many operations are done.
  explicit StreamQueue(uint32_t first)
      : sent_(first), limit_(first + kStep), reached_(first), marked_(first) {}

  // To be called before each operation. False: call QueueMarks::wait_for_place() first.
  bool take() { return has_room(count(1, /*exactly=*/false)); }
  // The same where counts must be exact. `position`: of the operation.
  bool take_exactly(uint32_t* position) {
    *position = count(1, /*exactly=*/true);
    return has_room(*position);
  }
  // The operation that is being sent came to nothing. Unless others have been counted since.
  void give_back(uint32_t position) {
    sent_.compare_exchange_strong(position, position - 1, std::memory_order_acq_rel);
  }
  // Before an operation that takes several places, instead, and before take(): all but one, which
  // take() counts. False: call QueueMarks::wait_for_places() first. At most kMost places.
  bool take_ahead(uint32_t places, bool exactly) {
    return has_room(count(places - 1, exactly) + 1);
  }
  // Around take() and the sending of the operation: until then no mark covers it.
  void begin_sending() { being_sent_.fetch_add(1, std::memory_order_acq_rel); }
  void end_sending() { being_sent_.fetch_sub(1, std::memory_order_release); }
  // position(): how many operations were counted; covered_position(): how many of them lie in front
  // of what is sent now. done(position): a synchronisation has shown that so many are finished.
  uint32_t position() const { return sent_.load(std::memory_order_acquire); }
  uint32_t covered_position() const {
    for (;;) {  // both counts are of one moment
      const uint32_t counted = position(), sent = being_sent();
      if (position() == counted && being_sent() == sent) return counted - sent;
    }
  }
  // Whether submitted work may be unfinished.
  bool may_have_work() const { return reached_.load(std::memory_order_acquire) != position(); }
  void done(uint32_t position);
  // Of a mark (QueueMarks::set).
  bool is_reached() const { return reached_.load(std::memory_order_acquire) != 0; }

 private:
  friend class QueueMarks;
  uint32_t being_sent() const { return being_sent_.load(std::memory_order_acquire); }
  bool has_room(uint32_t position) const {
    return distance(limit_.load(std::memory_order_relaxed), position) <= 0;
  }
  uint32_t count(uint32_t places, bool exactly) {
    if (exactly) return sent_.fetch_add(places, std::memory_order_acq_rel) + places;
    const uint32_t sent = sent_.load(std::memory_order_relaxed) + places;
    sent_.store(sent, std::memory_order_release);
    return sent;
  }
  void reach(uint32_t position);        // with reach_mutex_ held
  void catch_up();                      // with mutex_ held: counts that were lost
  void set_limit();                     // with mutex_ held
  void raise_limit(uint32_t position);  // likewise, to this at least
  static int32_t distance(uint32_t from, uint32_t to) { return static_cast<int32_t>(to - from); }
  bool has_place(uint32_t position) const {
    return distance(reached_.load(std::memory_order_acquire), position) <= int32_t{kMost};
  }

  // Positions count operations, modulo 2^32.
  std::atomic<uint32_t> sent_{0};
  std::atomic<uint32_t> being_sent_{0};  // of them, where somebody asks
  std::atomic<uint32_t> limit_{kStep};   // up to here no mark is needed
  std::atomic<uint32_t> reached_{0};     // the last position that the worker has reported
  std::mutex reach_mutex_;               // orders the writers of reached_; taken last
  std::mutex mutex_;
  uint32_t marked_ = 0;  // the last position that the worker was asked for; guarded by mutex_
};

}  // namespace fargpu::client
