// SharedHost: pinned memory of the application that the worker shares (SharedSegment): what
// cuMemHostAlloc gives where client and worker are on one host.
//
// Large allocations have a segment each. Small ones come from arenas, because a memory file and a
// registration with the driver for each of many small buffers would cost more than the buffers. An
// arena belongs to one context. Any thread; no lock is held across a call.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "client/memory/block_list.h"
#include "client/memory/shared_segment.h"

namespace fargpu::client {

class SharedHost {
 public:
  // A huge page and a size that the driver registers in about the time of ten small copies.
  static constexpr size_t kArenaBytes = 2u << 20;
  // From here on memory has its own segment: at most half of an arena lies idle.
  static constexpr size_t kOwnSegmentFrom = 1u << 20;

  struct Block {
    void* memory = nullptr;
    uint64_t device_pointer = 0;
  };

  // nullopt: sharing is not possible (now), the caller takes ordinary memory.
  std::optional<Block> allocate(Session& session, Context& context, size_t bytes);
  bool owns(uint64_t address) const;
  // Whether the application has ever got such memory. Without a lock.
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Takes back what allocate() gave, after all work that may use it is done. The memory is gone
  // also when that ends in an error. Needs a current context.
  CUresult free(Session& session, uint64_t address);
  // The context is gone, and with it the worker's half of its memory. The application's half stays
  // until it is freed.
  void forget(const Context& context);

 private:
  struct Holder {
    SharedSegment segment;
    std::optional<BlockList> blocks;  // an arena's
    bool in_worker = true;
  };
  using Map = std::map<uint64_t, Holder>;
  std::optional<Block> take_from_arena(const Context& context, size_t bytes);  // needs the lock
  Map::iterator holder_of(uint64_t address);                                   // needs the lock
  bool has_other_arena(const Holder& holder) const;                            // needs the lock

  mutable std::mutex mutex_;
  Map holders_;  // by address of the segment; guarded by mutex_
  std::atomic<bool> any_{false};
};

}  // namespace fargpu::client
