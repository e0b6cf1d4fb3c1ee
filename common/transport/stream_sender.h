// The sending half of a stream transport: frames gathered in one buffer, bulk sent from the
// caller's memory.
//
// One thread at a time. The descriptor belongs to the StreamTransport; bytes and system calls are
// counted in its counters.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <memory>
#include <span>

#include "common/transport/commit_check.h"
#include "common/transport/transport.h"

namespace fargpu::transport {


// Written by one thread each, read by any.
struct Counter {
  std::atomic<uint64_t> value{0};
  void add(uint64_t n) {
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t get() const { return value.load(std::memory_order_relaxed); }
};

class StreamSender {
 public:
  // `stall_timeout`: a peer that takes no byte for this long is lost.
  StreamSender(int descriptor, size_t max_slot_bytes, Clock::duration stall_timeout);

  // As in Transport. kLost and kTimeout with bulk under way mean that the stream is unusable: the
  // transport closes it.
  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline);
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline);
  Status flush(Deadline deadline) { return write_out({}, deadline); }

  Counter frames, bytes, system_calls;

 private:
  static constexpr size_t kMaxPending = 64;
  static constexpr size_t kMaxPieces = 128;  // of one sendmsg

  void append_pending(size_t offset, size_t bytes);
  void consume(size_t bytes, std::span<const Bytes>& bulk, size_t& offset);
  // Sends everything pending, then `bulk`.
  Status write_out(std::span<const Bytes> bulk, Deadline deadline);
  Status wait_writable(Deadline deadline);

  const int descriptor_;
  const size_t capacity_;
  const Clock::duration stall_timeout_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t end_ = 0;         // bytes of the buffer in use; a multiple of 8
  size_t slot_bytes_ = 0;  // of the reserved slot at end_; 0: none
  // What is to be sent, in order. Pieces of the buffer, which need not touch: slots are aligned,
  // the stream is not.
  iovec pending_[kMaxPending];
  size_t pending_begin_ = 0, pending_end_ = 0;
};

}  // namespace fargpu::transport
