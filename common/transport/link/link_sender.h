// The sending half of an emulated link (emulated_link.h): a bounded queue, and a thread that sends
// each frame when its time has come.
//
// reserve, commit, flush and set_aside as in Transport, one thread at a time; finish from any. The
// inner transport's sending side is used by the calling thread while the queue is empty, else by
// the link's thread; never by both, but for send_aside().
#pragma once

#include <condition_variable>
#include <mutex>

#include "common/host/thread.h"
#include "common/transport/commit_check.h"
#include "common/transport/counter.h"
#include "common/transport/link/link_schedule.h"
#include "common/transport/link/link_way.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class LinkSender {
 public:
  LinkSender(Transport& inner, const LinkSettings& settings, std::shared_ptr<LinkWay> way);
  ~LinkSender();

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline);
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline);
  Status flush(Deadline deadline);
  bool set_aside();
  // Queued frames are sent at once, as far as the peer accepts them quickly. Nothing is sent any
  // more afterwards.
  void finish();

  Counter frames, bytes;

 private:
  // As a socket's buffer: this much may be left of the committed bytes.
  static constexpr size_t kBacklogBytes = 4 << 20;
  // Bounds the memory where the inner transport is the slower one: the backlog and a large frame.
  static constexpr size_t kMostQueuedBytes = 24 << 20;

  void run();
  Status send(LinkFrame& frame, Deadline deadline);
  Status send_directly(Bytes frame, std::span<const Bytes> bulk, Deadline deadline);
  Status enqueue(Bytes frame, std::span<const Bytes> bulk, int64_t place, Deadline deadline);
  // When the frame at this place is due. While another connection shares the way, ask again then.
  Clock::time_point due(int64_t place, Clock::time_point now) {
    return way_->passed(connection_, place, now);
  }
  // So long before it is due the sending of a large frame begins, so that its last byte is there
  // when it is due, and not earlier: the shortest time of the inner transport for it.
  Clock::duration head_start(const LinkFrame& frame) const;
  void took(const LinkFrame& frame, Clock::duration time);
  // Until no more than the backlog is left. False when the deadline passed. `lock` is on mutex_.
  bool wait_for_room(std::unique_lock<std::mutex>& lock, Deadline deadline);

  Transport& inner_;
  const std::shared_ptr<LinkWay> way_;
  const size_t connection_;  // its number there
  LinkCost cost_;            // these five of the calling thread
  const int64_t backlog_;    // what it takes, in places of the way
  int64_t last_place_ = 0;   // of what was committed
  LinkBuffer slot_;
  size_t slot_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  LinkQueue queue_;       // these four guarded by mutex_
  bool sending_ = false;  // the link's thread uses the inner transport
  bool stop_ = false;
  Status failed_;
  double fastest_ = 0;  // nanoseconds a byte of large frames; the link's thread's
  Thread thread_;
};

}  // namespace fargpu::transport
