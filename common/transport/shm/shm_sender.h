// The sending half of a shared-memory transport: frames are built in a private slot and copied into
// the ring.
//
// One thread at a time. Errors other than kTimeout and kInvalidArgument mean that the session is
// over; the transport closes it.
#pragma once

#include <memory>

#include "common/transport/commit_check.h"
#include "common/transport/shm/shm_ring.h"
#include "common/transport/shm/shm_socket.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class ShmSender {
 public:
  ShmSender(RingMemory memory, ShmSocket& socket, size_t max_slot_bytes,
            Clock::duration stall_timeout, std::chrono::microseconds spin);

  Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline);
  Status commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline);
  // As Transport::post(). False: reserve() and commit() find out why.
  bool try_post(const wire::FrameHeader& header, Bytes body);
  void flush() {
    if (ring_.must_ring()) socket_.ring_consumer();
    unrung_bytes_ = 0;
  }
  // The peer will see published frames without a bell.
  bool peer_is_awake() const { return !ring_.consumer_sleeps(); }
  // As in DescriptorPassing.
  Status send_descriptor(uint64_t number, int descriptor);

  Counter frames, bytes;

 private:
  Status wait_for_room(size_t bytes, Deadline deadline);
  void note_written(size_t count) {
    bytes.add(count);
    unrung_bytes_ += count;
  }
  // Sends all bytes, waiting for space as often as needed.
  Status write(Bytes data, Deadline deadline);

  RingProducer ring_;
  ShmSocket& socket_;
  const Clock::duration stall_timeout_;
  const std::chrono::microseconds spin_;
  const size_t max_slot_bytes_;
  std::unique_ptr<uint64_t[]> slot_;
  size_t slot_bytes_ = 0;    // of the reserved slot; 0: none
  size_t unrung_bytes_ = 0;  // published since the last bell
  uint64_t descriptors_sent_ = 0;
};

}  // namespace fargpu::transport
