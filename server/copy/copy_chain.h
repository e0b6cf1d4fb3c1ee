// CopyChain: the ordered copies of one stream that are under way (OrderedCopies), in stream order.
// It knows how far the GPU and the client are, which gates may open and which staging blocks are
// free again. Calls no driver. One thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "common/copy/copy.h"
#include "common/transport/remote_memory.h"
#include "server/copy/staging.h"
#include "server/stream/gate_words.h"

namespace fargpu::server {

// A copy of one call.
struct OrderedCopy {
  uint64_t id = 0;
  uint64_t bytes = 0;
  bool fetch = false;
  // The client memory to which a delivery's bytes are written one-sidedly (kRemote, and the range
  // has been checked); in a frame they travel in its notices.
  copy::Location target;
  // Progress, in bytes from the beginning.
  uint64_t sent = 0;                 // of a delivery
  uint64_t asked = 0, received = 0;  // of a fetch
  bool reached = false;              // the stream has come to the fetch or barrier
  bool acknowledged = false;         // the client has the bytes of the delivery or deliveries
  bool dropped = false;              // there is nothing to copy any more
  bool is_written() const { return target.kind == copy::Location::Kind::kRemote; }
  // Only holds a stream at this place until the client has all bytes delivered before it.
  bool is_barrier() const { return !fetch && bytes == 0; }
};

// An element in stream order: a piece of a copy, the end of a delivery that holds its stream, or a
// barrier.
struct CopyElement {
  enum class Kind { kDelivery, kFetch, kAcknowledgement, kAmended };
  Kind kind = Kind::kDelivery;
  std::shared_ptr<OrderedCopy> copy;
  uint64_t offset = 0, bytes = 0;       // of the copy's packed bytes
  std::shared_ptr<StagingBlock> block;  // none: the adapter copies device memory in the stream
  uint64_t block_free_at = 0;           // when the chain has come to this index
  uint64_t number = 0;                  // the order in which deliveries were submitted
  bool gated = false;
  bool to_send = false;
  CUevent start = nullptr;  // before the gate of the first piece of a fetch, or of a barrier
  CUevent done = nullptr;   // behind the copy
  CUresult result = CUDA_SUCCESS;
  // The adapter's view of the block, when it writes to the client, and its write under way.
  const transport::RegisteredMemory* registered = nullptr;
  transport::RemoteMemory::Ticket write = 0;
  uint64_t beside = 0;  // the number of its last delivery on the bulk connection
};

// An index counts all elements that the chain has ever had.
struct CopyChain {
  struct Used {
    std::shared_ptr<StagingBlock> block;
    uint64_t free_at;
  };

  uint16_t context = 0;
  uint64_t stream_id = 0;
  bool detached = false;  // the stream's id is gone
  GateWord* word = nullptr;
  std::deque<CopyElement> elements;
  uint64_t first = 0;       // index of the oldest element
  uint64_t ready = 0;       // index: the copies before it are done on the GPU
  uint64_t next_send = 0;   // index: the copies before it have been sent
  uint64_t next_gate = 0;   // index: gates before it are open
  uint64_t next_ask = 0;    // index: fetches before it have been asked for
  std::deque<Used> blocks;  // in use, ordered by the time when they become free

  uint64_t end() const { return first + elements.size(); }
  CopyElement& at(uint64_t index) { return elements[index - first]; }

  void use(const std::shared_ptr<StagingBlock>& block) { blocks.push_back({block, end() + 1}); }
  // Gives the element a block of at least so many bytes that an earlier element still uses. False:
  // there is none.
  bool share_block(uint64_t bytes, CopyElement* element);
  // The oldest element that is done and has not been sent; null: none.
  CopyElement* next_to_send();
  // Whether the oldest element has a gate that is not open.
  bool front_is_shut() const { return elements.front().gated && next_gate <= first; }
  // Removes the oldest element, whose events have been released, and opens its gate.
  void pop();
  // Drops blocks that no element uses any more. Returns their bytes.
  uint64_t free_blocks();
  uint64_t block_bytes() const;
  // Opens gates in order, up to the first whose condition is not met.
  void open_gates();
  void open_all_gates();
};

}  // namespace fargpu::server
