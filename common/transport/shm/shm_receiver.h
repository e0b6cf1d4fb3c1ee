// The receiving half of a shared-memory transport: takes frames out of the ring.
//
// Header and body are copied into private memory before they are judged, bulk straight to where the
// handler wants it, in pieces while the peer still writes. One thread at a time.
#pragma once

#include <memory>

#include "common/transport/shm/shm_ring.h"
#include "common/transport/shm/shm_socket.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

class ShmReceiver {
 public:
  ShmReceiver(RingMemory memory, ShmSocket& socket, const wire::FrameLimits& limits);

  // Delivers all frames that have arrived; how many frames. kProtocol, or the handler's error.
  Result<size_t> deliver(FrameHandler& handler);
  bool in_frame() const { return header_bytes_ > 0; }
  RingConsumer& ring() { return ring_; }
  const RingConsumer& ring() const { return ring_; }

  Counter frames, bytes;

 private:
  // True when a whole frame was delivered, false when there is nothing more to read.
  Result<bool> step(FrameHandler& handler);
  // Fills `room` from `done` on; true when it is full.
  bool fill(std::span<std::byte> room, size_t& done);
  void publish();
  Status begin_bulk(FrameHandler& handler);
  // Of the frame that is arriving, in memory for the largest one.
  std::span<std::byte> body() const {
    return {reinterpret_cast<std::byte*>(body_.get()), header_.body_bytes};
  }

  RingConsumer ring_;
  ShmSocket& socket_;
  const wire::FrameLimits limits_;
  std::unique_ptr<uint64_t[]> body_;
  // The frame that is arriving. Parts follow each other: header, body, bulk.
  wire::FrameHeader header_;
  std::span<std::byte> bulk_;
  size_t header_bytes_ = 0, body_bytes_ = 0, bulk_bytes_ = 0;  // of each, how much has come
  bool checked_ = false, has_bulk_room_ = false;
};

}  // namespace fargpu::transport
