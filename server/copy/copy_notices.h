// CopyNotices: the notices that tell the client about ordered copies, with their bytes in frames,
// by one-sided writes or by the bulk connection. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/copy/copy_chain.h"
#include "server/core/core.h"

namespace fargpu::server {

class BulkDeliveries;
class RemoteStaging;

// A lost session is seen by the executor: nothing here says so.
class CopyNotices {
 public:
  // `max_bulk_bytes`: most that one frame to the client may carry.
  CopyNotices(const Core& core, RemoteStaging& remote_staging, uint64_t max_bulk_bytes)
      : core_(core), remote_staging_(remote_staging), max_bulk_bytes_(max_bulk_bytes) {}

  // Large deliveries go this way from now on, if the client knows it. Null: they do no more.
  void deliver_beside(BulkDeliveries* beside) { beside_ = beside; }
  // Sends the bytes of a delivery that the GPU is done with. An error: they cannot be sent.
  CUresult deliver(CopyElement& element);
  // The adapter, or the thread that sends on the bulk connection, still reads the element's block.
  bool is_being_read(const CopyElement& element) const;
  // The element goes before that has ended: its block stays.
  void keep(const CopyElement& element);
  // Asks for the bytes of a fetch, or whether a barrier can end.
  void ask(const CopyElement& element);
  // All bytes of a fetch have come by the bulk connection.
  void landed(const OrderedCopy& copy);
  // Reports that nothing is left to copy. Only sent while the client waits for something: for bytes
  // of a delivery, or to be asked for bytes of a fetch. Otherwise the client has forgotten the
  // copy, or will when it has done its part.
  void over(const OrderedCopy& copy, CUresult result);

 private:
  bool goes_beside(const CopyElement& element) const;
  // In pieces that a frame may have.
  void send(CopyElement& element, bool beside);
  void send_in_frame(const CopyElement& element, uint64_t offset, std::span<const std::byte> bytes);
  void tell_written(const CopyElement& element);

  const Core core_;
  RemoteStaging& remote_staging_;
  const uint64_t max_bulk_bytes_;
  BulkDeliveries* beside_ = nullptr;
};

}  // namespace fargpu::server
