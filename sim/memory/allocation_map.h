// Every piece of memory that CUDA knows in this process, by address: device memory, pinned,
// registered and managed host memory, mapped physical memory. The addresses are CPU addresses.
// Finds the allocation of an address and its access rights.
//
// Thread safe; find() takes a shared lock. Holds no memory itself: the inserter owns the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace fargpu::advice {
class RangeAdvice;
}  // namespace fargpu::advice

namespace fargpu::sim {

struct Allocation {
  enum class Kind : uint8_t { kDevice, kPinned, kRegistered, kManaged, kMapped };
  uint64_t base = 0;
  uint64_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = -1;       // ordinal; for host memory: of the context that made it
  uint64_t context = 0;  // id of the owner; 0: no context (pools, mapped memory)
  uint64_t context_handle = 0;
  unsigned flags = 0;       // as given to cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
  uint32_t readable = ~0u;  // one bit per device ordinal (kMapped, pools, opened)
  uint32_t writable = ~0u;
  uint64_t pool = 0;                              // handle of the pool it came from
  uint64_t buffer_id = 0;                         // given by insert(), unique in the process
  std::optional<bool> sync_memops{};              // as set; device memory has it from the start
  bool freeing = false;                           // a stream will free it
  std::shared_ptr<advice::RangeAdvice> advice{};  // managed memory; changed under the map's lock
  bool is_variable = false;                       // managed memory of a module (ManagedVariables)
  bool opened = false;                            // memory of another process (Interprocess)
  bool graph = false;  // of an allocation node (GraphMemory): absent while it must not be accessed

  uint64_t end() const { return base + bytes; }
  bool is_host() const { return kind == Kind::kPinned || kind == Kind::kRegistered; }
};

class AllocationMap {
 public:
  // false: it would overlap another one (then nothing changed).
  bool insert(Allocation allocation);
  std::optional<Allocation> erase(uint64_t base);
  std::optional<Allocation> find(uint64_t address) const;
  // Takes out all that belong to a context.
  std::vector<Allocation> take_context(uint64_t context);
  // Calls `visit` for each allocation that touches the range, in order, under the lock; false: it
  // stopped early or a byte of the range belongs to no allocation.
  bool for_range(uint64_t address, uint64_t bytes, const std::function<bool(Allocation&)>& visit);
  // Calls `visit` for each allocation of a pool, under the lock.
  void for_pool(uint64_t pool, const std::function<void(Allocation&)>& visit);
  // The range lies in one allocation, or in mappings next to each other, and at least one device
  // may read each byte.
  bool covered(uint64_t address, uint64_t bytes) const;
  // The same, for work that runs when memory of allocation nodes is there.
  bool covered_later(uint64_t address, uint64_t bytes) const;
  // Changes the access rights of an allocation: these; these, too.
  void set_access(uint64_t base, uint32_t mask);
  void add_access(uint64_t base, uint32_t mask);
  // Some byte of the range belongs to an allocation.
  bool touches(uint64_t address, uint64_t bytes) const;

 private:
  bool covers(uint64_t address, uint64_t bytes, bool later) const;
  std::map<uint64_t, Allocation>::const_iterator containing(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Allocation> map_;
  uint64_t next_id_ = 1;
};

}  // namespace fargpu::sim
