// Device memory as one context's kernels see it: its own device, accessible peers, host memory
// known to CUDA, and mappings with access for its device.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

#include "sim/exec/engine.h"

namespace fargpu::sim {

class AllocationMap;
class DeviceMemory;

class ContextMemory final : public MemoryMap {
 public:
  // `allocations` and `memory` outlive it. `device`: ordinal; `context`: id of the owner of memory
  // from allocate().
  ContextMemory(AllocationMap& allocations, DeviceMemory& memory, int device, uint64_t context);

  std::optional<Range> find(uint64_t address, size_t bytes) const override;
  uint64_t allocate(size_t bytes) override;
  void release(uint64_t address) override;
  std::shared_ptr<const Texture> texture(uint64_t value) const override;
  std::shared_ptr<const Surface> surface(uint64_t value) const override;

  // Bits of peer device ordinals whose memory may be touched.
  void enable_peer(int device) { peers_.fetch_or(1u << device, std::memory_order_relaxed); }
  void disable_peer(int device) { peers_.fetch_and(~(1u << device), std::memory_order_relaxed); }
  bool peer_enabled(int device) const {
    return (peers_.load(std::memory_order_relaxed) >> device) & 1;
  }

  // The context's memory has been freed as a whole: release() has nothing left to do.
  void abandon();

 private:
  AllocationMap& allocations_;
  DeviceMemory& memory_;
  const int device_;
  const uint64_t context_;
  std::atomic<uint32_t> peers_{0};
  std::mutex mutex_;
  std::set<uint64_t> own_;  // given by allocate() and not released
};

}  // namespace fargpu::sim
