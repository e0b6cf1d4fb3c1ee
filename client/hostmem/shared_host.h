// SharedHost: pinned memory of the application that the worker shares (SharedSegment).
// cuMemHostAlloc gives it where client and worker are on one host.
//
// A large allocation has a segment of its own. Small ones come from arenas, because a memory file
// and a driver registration for each would cost more than the memory. An arena belongs to one
// context. Any thread; no lock is held across a call.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "client/hostmem/block_list.h"
#include "client/hostmem/shared_segment.h"
#include "client/stream/observers.h"

namespace fargpu::client {

class SharedHost {
 public:
  // `functions`: calls that may block streams for which a driver waits when memory is freed.
  // `observers`: SharedHost owns kSharedMemory of it.
  SharedHost(Link& link, HostCalls& functions, Observers& observers)
      : link_(link), functions_(functions), observers_(observers) {}

  // The size of a huge page. The driver registers it in about the time of ten small copies.
  static constexpr size_t kArenaBytes = 2u << 20;
  // Allocations from this size on have their own segment, so at most half of an arena is unused.
  static constexpr size_t kOwnSegmentFrom = 1u << 20;

  struct Block {
    void* memory = nullptr;
    uint64_t device_pointer = 0;
  };

  // nullopt: sharing is not possible (now); the caller uses ordinary memory.
  std::optional<Block> allocate(Context& context, size_t bytes);
  bool owns(uint64_t address) const;
  // Frees memory of allocate(), after all work that may use it is done. The memory is freed even if
  // an error is returned. Needs a current context.
  CUresult free(uint64_t address);
  // The context was destroyed, and with it the worker's mapping of its memory. The application's
  // mapping stays until it is freed.
  void context_ended(const Context& context);

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

  Link& link_;
  HostCalls& functions_;
  Observers& observers_;
  mutable std::mutex mutex_;
  Map holders_;  // by address of the segment; guarded by mutex_
};

}  // namespace fargpu::client
