// A memory pool of one device: gives device memory to stream-ordered allocations and keeps freed
// memory, up to the release threshold, for the next allocation of the same size. One that another
// process has exported gives none: its memory is opened by Interprocess. Thread safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/registry.h"
#include "sim/memory/shared_pool.h"

namespace fargpu::sim {

class Device;

class Pool {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kPool;

  Pool(Device& device, bool is_default, uint64_t max_bytes = 0);

  Device& device() const { return device_; }
  bool is_default() const { return is_default_; }
  uint64_t handle() const { return handle_; }
  void set_handle(uint64_t handle) { handle_ = handle; }
  // Of a pool that was made for several processes, or by another one (is_import); set before the
  // pool is published.
  void share(SharedPool shared, bool is_import) {
    shared_ = std::move(shared);
    is_import_ = is_import;
  }
  const std::optional<SharedPool>& shared() const { return shared_; }
  bool is_import() const { return is_import_; }
  // Its memory can be exported from now on.
  void export_memory() { exported_ = true; }
  bool is_exported() const { return exported_; }

  // 0: out of memory (the device's, or the pool's own maximum).
  uint64_t allocate(uint64_t bytes);
  // With the bytes that were asked for.
  void free(uint64_t address, uint64_t bytes);
  // Gives cached memory back until at most `keep` bytes are held.
  void trim(uint64_t keep);
  CUresult get(CUmemPool_attribute attribute, void* value) const;
  CUresult set(CUmemPool_attribute attribute, const void* value);
  // Ends new allocations. True when nothing is outstanding, so that the pool can be destroyed at
  // once; otherwise the last free() destroys it.
  bool retire();
  bool retired() const;

  CUmemAccess_flags access(int device) const;
  // One bit per device that may use the memory.
  uint32_t access_mask() const;
  void set_access(int device, CUmemAccess_flags flags);

 private:
  void trim_locked(uint64_t keep);

  Device& device_;
  const bool is_default_;
  const uint64_t max_bytes_;  // 0: no limit of its own
  uint64_t handle_ = 0;       // set once, before the pool is published
  std::optional<SharedPool> shared_;
  bool is_import_ = false;
  std::atomic<bool> exported_{false};

  mutable std::mutex mutex_;
  std::multimap<uint64_t, uint64_t> cached_;  // block bytes -> address
  uint64_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  uint64_t threshold_ = 0;
  int reuse_[3] = {1, 1, 1};  // accepted and reported; blocks are reused only when they are free
  std::map<int, CUmemAccess_flags> access_;
  bool retired_ = false;
};

class Driver;
// nullptr: there is none, or it was destroyed.
std::shared_ptr<Pool> find_pool(Driver& driver, CUmemoryPool handle);

}  // namespace fargpu::sim
