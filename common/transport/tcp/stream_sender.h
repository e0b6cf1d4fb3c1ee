// The sending half of a stream transport: frames gathered in one buffer, bulk sent from the
// caller's memory, large bulk over all connections at once (bulk_shares.h).
//
// One thread at a time. The descriptors belong to the StreamTransport; bytes and system calls are
// counted in its counters.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <vector>

#include "common/transport/bulk_shares.h"
#include "common/transport/commit_check.h"
#include "common/transport/counter.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class StreamSender {
 public:
  // 1 to kMaxConnections descriptors. `stall_timeout`: a peer that takes no byte for this long is
  // lost.
  StreamSender(std::vector<int> descriptors, size_t max_slot_bytes, Clock::duration stall_timeout);

  // As in Transport. kLost and kTimeout with bulk under way mean that the stream is unusable: the
  // transport closes it.
  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline);
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline);
  // As Transport::post(). False: reserve() and commit() find out why.
  bool try_post(const wire::FrameHeader& header, Bytes body);
  Status flush(Deadline deadline) { return write_out({}, 0, deadline); }

  Counter frames, bytes, system_calls;

 private:
  static constexpr size_t kMaxPending = 64;
  static constexpr size_t kMaxPieces = 128;  // of one sendmsg

  void append_pending(size_t offset, size_t bytes);
  void consume_pending(size_t& bytes);
  // Sends everything pending, then `bulk` of that many bytes.
  Status write_out(std::span<const Bytes> bulk, uint64_t bulk_bytes, Deadline deadline);
  // One system call for the rest of connection `index`: its share, and on the first connection
  // everything pending before it. False: the connection takes nothing now.
  Result<bool> write_some(size_t index, ShareCursor& share);
  // Waits until one of these connections takes bytes. Returns the bits of those that do.
  Result<unsigned> wait_writable(unsigned connections, Deadline deadline);

  const std::vector<int> descriptors_;
  const size_t capacity_;
  const Clock::duration stall_timeout_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t end_ = 0;         // bytes of the buffer in use; a multiple of 8
  size_t slot_bytes_ = 0;  // of the reserved slot at end_; 0: none
  // What is to be sent, in order, as pieces of the buffer. They need not be adjacent: slots are
  // aligned, the stream is not.
  iovec pending_[kMaxPending];
  size_t pending_begin_ = 0, pending_end_ = 0;
};

}  // namespace fargpu::transport
