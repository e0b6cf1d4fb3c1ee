// The sending half of the rdma transport: a stream of bytes into the peer's ring.
//
// Frames are built in registered staging memory. One message carries all that was committed since
// the last. Large bulk in registered memory is sent from there; other bulk goes in pieces through
// staging, and the adapter sends one piece while the next is copied. One thread at a time. A Status
// other than kTimeout or kInvalidArgument means that the link is lost.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "common/transport/commit_check.h"
#include "common/transport/counter.h"
#include "common/transport/rdma/rdma_link.h"
#include "common/transport/rdma/rdma_memory.h"

namespace fargpu::transport {

class RdmaSender {
 public:
  RdmaSender(RdmaLink& link, RdmaRegions& regions, std::unique_ptr<RdmaBuffer> staging,
             size_t max_slot_bytes, Clock::duration stall_timeout);

  // As in Transport. kTimeout of commit with bulk under way means that the stream is unusable.
  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline);
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline);
  Status flush(Deadline deadline);

  Counter frames, bytes;

 private:
  static constexpr size_t kMaxPending = 64;
  struct Piece {
    uint64_t begin;  // position in staging
    size_t bytes;
  };
  struct InFlight {
    uint64_t request;
    uint64_t staging_end;
  };

  std::byte* place(uint64_t position) const {
    return staging_->data() + staging_->offset(position);
  }
  // Where `bytes` in one piece would begin.
  uint64_t contiguous(size_t bytes) const {
    const uint64_t begin = (end_ + 7) & ~uint64_t{7};
    const size_t left = staging_->size() - staging_->offset(begin);
    return left >= bytes ? begin : begin + left;
  }
  bool fits(uint64_t begin, size_t bytes) const {
    return begin + bytes - begin_ <= staging_->size();
  }
  void release();
  void append_pending(uint64_t begin, size_t bytes);
  // How many of the `wanted` bytes the next message may have; 0: better wait.
  size_t message_room(size_t wanted) const;
  // One message behind the others. The number of its request; 0: no room in the send queue.
  Result<uint64_t> post_message(std::span<ibv_sge> pieces, size_t bytes, bool signal);
  // Posts pending messages as far as credits allow, without waiting. True when nothing is left.
  Result<bool> post_pending();
  template <typename Ready>
  Status wait(Deadline deadline, Ready ready);
  // Waits until another request is complete, or a message with some of `wanted` bytes may be sent.
  Status wait_to_post(uint64_t completed, size_t wanted, Deadline deadline);
  // Waits for room for `bytes` in one piece and for one more pending entry.
  Status wait_for_staging(size_t bytes, Deadline deadline);
  Result<std::span<std::byte>> reserve_scratch(size_t bytes, Deadline deadline);
  Status send_bulk(std::span<const Bytes> bulk, Deadline deadline);
  Status copy(Bytes data, Deadline deadline);
  Status send_in_place(Bytes data, const RdmaRegion& region, Deadline deadline);

  RdmaLink& link_;
  RdmaRegions& regions_;
  const std::unique_ptr<RdmaBuffer> staging_;
  const size_t max_slot_bytes_;
  const Clock::duration stall_timeout_;
  // Positions in staging only grow: [begin_, end_) is in use.
  uint64_t begin_ = 0, end_ = 0;
  uint64_t slot_ = 0;      // where the reserved slot begins
  size_t slot_bytes_ = 0;  // 0: none
  bool slot_in_scratch_ = false;
  // for slots that are too large for staging; made on first use
  std::unique_ptr<std::byte[]> scratch_;
  std::array<Piece, kMaxPending> pending_;
  size_t pending_begin_ = 0, pending_end_ = 0, pending_bytes_ = 0;
  // of messages from staging, oldest first, as a ring
  std::array<InFlight, kRdmaSendDepth> in_flight_;
  uint64_t first_in_flight_ = 0, last_in_flight_ = 0;
  size_t unsignalled_bytes_ = 0;
  ibv_send_wr message_{};  // fields common to all messages are set once
};

}  // namespace fargpu::transport
