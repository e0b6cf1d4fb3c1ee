// The sending half of a stream transport: frames gathered in one buffer, bulk sent from the
// caller's memory, large bulk over all connections at once (bulk_shares.h).
//
// One thread at a time, except send_aside(), which any thread may call at the same time. The
// descriptors belong to the StreamTransport; bytes and system calls are counted in its counters.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/host/quick_mutex.h"
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
  Status flush(Deadline deadline);
  bool set_aside();
  Status send_aside();

  Counter frames, bytes, system_calls;

 private:
  // Bytes that are to be sent, in order, as pieces of a buffer. They need not be adjacent: slots
  // are aligned, the stream is not.
  struct Pending {
    static constexpr size_t kMost = 64;
    bool empty() const { return begin == end; }
    void clear() { begin = end = used = 0; }
    void append(size_t offset, size_t bytes);
    // The first `bytes`, or as many as there are, are sent; takes them off.
    void consume(size_t& bytes);
    std::unique_ptr<std::byte[]> buffer;
    size_t used = 0;  // bytes of the buffer; a multiple of 8
    iovec pieces[kMost];
    size_t begin = 0, end = 0;  // of the pieces
  };
  // Of one sendmsg: what is aside, what is pending, and as many of a share.
  static constexpr size_t kMaxPieces = 3 * Pending::kMost;

  // With socket_mutex_ held. What is aside and, unless it is null, `pending`, as far as the first
  // connection takes it now. False: some is left.
  Result<bool> write_small(Pending* pending);
  // Sends all deferred and pending frames, then `bulk` of that many bytes.
  Status write_out(std::span<const Bytes> bulk, uint64_t bulk_bytes, Deadline deadline);
  // With socket_mutex_ held, as the next one. One system call for the rest of connection `index`:
  // its share, and on the first connection `pending` before it, null: only deferred frames. False:
  // the connection takes nothing now.
  Result<bool> write_some(size_t index, Pending* pending, ShareCursor& share);
  // Waits until one of these connections takes bytes. Returns the bits of those that do.
  Result<unsigned> wait_writable(unsigned connections, Deadline deadline);

  const std::vector<int> descriptors_;
  const size_t capacity_;
  const Clock::duration stall_timeout_;
  Pending both_[2];
  Pending* pending_ = &both_[0];  // the sending thread's
  size_t slot_bytes_ = 0;         // of the reserved slot at its end; 0: none
  QuickMutex socket_mutex_;       // held while bytes are written, so that they keep their order
  Pending* aside_ = &both_[1];    // guarded by socket_mutex_
};

}  // namespace fargpu::transport
