// The memory of one simulated GPU: a window of CPU addresses, reserved at start and committed as it
// is handed out. It lies in a memory file, so that other processes can map parts of it.
//
// Freed pages go back to the system but stay readable and writable, so that a kernel that still
// runs on freed memory reads zeros and cannot crash the process; whether an access is legal is the
// AllocationMap's business. Between two allocations there is a gap of at least 256 bytes. Thread
// safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "common/base/fd.h"
#include "sim/memory/range_allocator.h"

namespace fargpu::sim {

class HostUsage;

class DeviceMemory {
 public:
  // `slot` (settings.h) and `index`, the physical number of the GPU, choose the window's address.
  // `host`: memory of other processes on `unit` counts; null: this process has it alone.
  DeviceMemory(int index, size_t total_bytes, int slot = 0,
               std::shared_ptr<HostUsage> host = nullptr, int unit = 0);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Address of `bytes` (> 0) of memory, aligned to 512; 0: out of memory.
  uint64_t allocate(uint64_t bytes);
  // An allocation with the bytes it was asked for.
  void free(uint64_t address, uint64_t bytes);
  // The same in two steps: addresses now, and memory behind them while it is charged for. A range
  // is given back when nothing is charged for it.
  uint64_t reserve(uint64_t bytes);
  void give_back(uint64_t address, uint64_t bytes);
  // Accounts for memory that lives elsewhere (physical memory of VMM). false: out of memory.
  bool charge(uint64_t bytes);
  void refund(uint64_t bytes);

  // Where the memory at an address is in the memory file.
  uint64_t offset_of(uint64_t address) const { return address - begin_; }
  int descriptor() const { return file_.get(); }

  size_t total() const { return total_; }
  size_t available() const;

 private:
  bool take(uint64_t bytes);                            // needs mutex_
  void give_up(uint64_t bytes);                         // needs mutex_
  uint64_t find_range(uint64_t charged);                // needs mutex_
  void drop_range(uint64_t address, uint64_t charged);  // needs mutex_
  bool commit(uint64_t end);

  const size_t total_;
  const std::shared_ptr<HostUsage> host_;
  const int unit_;
  mutable std::mutex mutex_;
  Fd file_;
  uint64_t begin_ = 0, end_ = 0;
  uint64_t committed_ = 0;  // pages below are readable and writable
  size_t used_ = 0;
  std::optional<RangeAllocator> ranges_;
};

}  // namespace fargpu::sim
