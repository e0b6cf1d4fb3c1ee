// StreamQueue: how far the application may be ahead of the GPU in one stream.
//
// A driver's queue accepts about a thousand operations that have not begun (an H100 with driver
// 580: 1021). Then the submitting call waits. In the worker the waiting thread would be the
// executor, and every thread of the client would wait with it. So the thread that would submit more
// waits here, as it does natively, and stops no other thread. It also keeps one thread's backlog
// from delaying the calls of others for long. Every kStep operations the worker is asked to report
// when they are done (fgQueueMark).
//
// take() costs a comparison more than a count. Any thread; threads that use one stream at the same
// time may lose a few counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace fargpu::client {

class StreamQueue {
 public:
  static constexpr uint32_t kMost = 960;
  static constexpr uint32_t kStep = 240;
  // What a driver takes into the queue itself counts by its bytes, too: parameters of launches, and
  // copies from ordinary memory up to 64 KiB. The whole queue has 4 MiB (seen on an H100 with
  // driver 580: 735 launches with 4000 bytes, 250 copies of 16 KiB, 63 of 64 KiB).
  static constexpr uint32_t kBytesOfPlace = 4300;
  static constexpr uint32_t kBytesOfLaunch = 1750, kBytesOfCopy = 200;  // beside those
  static constexpr uint32_t places_of(uint32_t bytes) {
    return (bytes + kBytesOfPlace - 1) / kBytesOfPlace;
  }

  StreamQueue() = default;
  // For tests of the wrap.
  explicit StreamQueue(uint32_t first)
      : sent_(first), limit_(first + kStep), reached_(first), marked_(first) {}

  // To be called before each operation. False: call QueueMarks::wait_for_place() first.
  bool take() {
    const uint32_t sent = sent_.load(std::memory_order_relaxed) + 1;
    sent_.store(sent, std::memory_order_relaxed);
    return distance(limit_.load(std::memory_order_relaxed), sent) <= 0;
  }
  // Before an operation that takes several places, instead, and before take(): all but one, which
  // take() counts. False: call QueueMarks::wait_for_places() first. At most kMost places.
  bool take_ahead(uint32_t places) {
    const uint32_t sent = sent_.load(std::memory_order_relaxed) + places - 1;
    sent_.store(sent, std::memory_order_relaxed);
    return distance(limit_.load(std::memory_order_relaxed), sent + 1) <= 0;
  }
  // position(): how many operations were submitted. done(position): a synchronisation has shown
  // that so many are finished.
  uint32_t position() const { return sent_.load(std::memory_order_relaxed); }
  void done(uint32_t position);

 private:
  friend class QueueMarks;
  void reach(uint32_t position);        // with reach_mutex_ held
  void set_limit();                     // with mutex_ held
  void raise_limit(uint32_t position);  // likewise, to this at least
  static int32_t distance(uint32_t from, uint32_t to) { return static_cast<int32_t>(to - from); }
  bool has_place(uint32_t position) const {
    return distance(reached_.load(std::memory_order_acquire), position) <= int32_t{kMost};
  }

  // Positions count operations, modulo 2^32.
  std::atomic<uint32_t> sent_{0};
  std::atomic<uint32_t> limit_{kStep};  // up to here no mark is needed
  std::atomic<uint32_t> reached_{0};    // the last position that the worker has reported
  std::mutex reach_mutex_;              // orders the writers of reached_; taken last
  std::mutex mutex_;
  uint32_t marked_ = 0;  // the last position that the worker was asked for; guarded by mutex_
};

// The marks under way of all streams of a session. Any thread.
class QueueMarks {
 public:
  // How the worker is reached. `ask(ticket)`: false when the worker cannot be asked; the mark then
  // counts as reached. `wait(seen)` waits until seen(); false when the session is lost.
  class Worker {
   public:
    virtual ~Worker() = default;
    virtual bool ask(uint64_t ticket) = 0;
    virtual bool wait(const std::function<bool()>& seen) = 0;
  };
  void wait_for_place(const std::shared_ptr<StreamQueue>& queue, Worker& worker) {
    wait(queue, queue->position(), 1, worker);
  }
  void wait_for_places(const std::shared_ptr<StreamQueue>& queue, uint32_t places, Worker& worker) {
    wait(queue, queue->position() + 1, places, worker);
  }
  // A mark behind everything submitted so far to the stream that `worker` asks about.
  std::shared_ptr<StreamQueue> set(Worker& worker);
  static bool is_reached(const StreamQueue& mark) {
    return mark.reached_.load(std::memory_order_acquire) != 0;
  }
  // Called on the receiving thread; does not block.
  void reached(uint64_t ticket);

 private:
  struct Mark {
    std::shared_ptr<StreamQueue> queue;
    uint32_t position;
  };
  // For an operation that has the last `places` up to `position`, and is not sent yet.
  void wait(const std::shared_ptr<StreamQueue>& queue, uint32_t position, uint32_t places,
            Worker& worker);

  std::mutex mutex_;
  std::map<uint64_t, Mark> marks_;  // by ticket
  uint64_t next_ticket_ = 1;
};

}  // namespace fargpu::client
