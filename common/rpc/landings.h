// Landings: deliveries on the bulk connection of a Channel, and the frames that must wait for them.
//
// The server sends the number of each delivery on the connection of the calls, at the place where
// the bytes would be without a bulk connection. Deliveries land in the order of their numbers, each
// after its number was read: so they keep their order with deliveries in frames. Frames after a
// number may show that a stream has passed the copy. A reply goes to its caller, which then waits
// until that number has landed (wait). A notice is kept, and handled by the thread that reads the
// bulk connection. So the thread that reads the connection of the calls waits only while too many
// notices are kept.
//
// All numbers count from 1. The server's frames are checked; a Status ends the session.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/link_estimate.h"
#include "common/transport/transport.h"

namespace fargpu::rpc {

class Landings final : public transport::FrameHandler {
 public:
  // With more than so many bytes of kept notices the connection of the calls is not read.
  static constexpr size_t kMostKeptBytes = 32 << 20;

  // The references outlive this. `landed` is called on the thread that reads the bulk connection,
  // when a delivery has landed and the frames kept behind it have been handled; it must not block.
  Landings(NoticeSink& sink, const wire::FrameLimits& limits, LinkUse& link_use,
           std::function<void()> landed)
      : sink_(sink), limits_(limits), link_use_(link_use), landed_now_(std::move(landed)) {}

  // For the thread that reads the connection of the calls. The next number; all are modulo 2^32 on
  // the wire.
  Status announce(uint32_t number);
  uint64_t announced() const { return announced_.load(std::memory_order_relaxed); }
  bool has_landed(uint64_t number) const {
    return landed_.load(std::memory_order_acquire) >= number;
  }
  bool all_landed() const { return has_landed(announced()); }
  // A notice, or the error of an asynchronous call: handled at once if all has landed, else later.
  // `bulk` is copied if it must.
  Status take(const wire::FrameHeader& header, Bytes body, Bytes bulk);

  // Any thread. True when the number has landed; false at the deadline, or after release().
  bool wait(uint64_t number, transport::Deadline deadline);

  // The session is lost: nothing lands any more. Any thread.
  void end();
  // The bulk connection is not read any more. Called by the thread that read it.
  void stop();
  // Waits for stop(), which follows the end of the connection, or for the deadline.
  void wait_for_stop(transport::Deadline deadline = transport::kNoDeadline);
  // After stop(): nothing that is kept will be handled, but what was printed is shown.
  void drop_kept();
  // Ends all waits.
  void release();

  // Frames of the bulk connection.
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes body) override;
  Status on_frame(const wire::FrameHeader& header, Bytes body, std::span<std::byte> bulk) override;

 private:
  struct Kept {
    wire::FrameHeader header;
    std::vector<std::byte> body, bulk;
    uint64_t behind;  // the last number before it
    size_t bytes() const { return sizeof(Kept) + body.size() + bulk.size(); }
  };
  Status check(const wire::FrameHeader& header) const;
  Status handle(const wire::FrameHeader& header, Bytes body, Bytes bulk);
  Status land();

  NoticeSink& sink_;
  const wire::FrameLimits limits_;
  LinkUse& link_use_;
  const std::function<void()> landed_now_;
  std::vector<std::byte> memory_;  // of the thread that reads the bulk connection
  std::mutex mutex_;
  std::condition_variable changed_;
  // Written under mutex_. All notices that were kept behind a number have been handled before it
  // counts as landed.
  std::atomic<uint64_t> announced_{0}, landed_{0};
  std::deque<Kept> kept_;  // guarded by mutex_, as are the following
  size_t kept_bytes_ = 0;
  bool ended_ = false, stopped_ = false, released_ = false;
};

}  // namespace fargpu::rpc
