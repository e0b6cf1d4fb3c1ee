// PhysicalMemory: what cuMemCreate made, as the ledger sees it. The driver frees such memory when
// its last handle is released and its last mapping is gone. Only then is it refunded, to the device
// on which it was made. An unmapping that takes long is announced before and after, because the
// driver may map other memory at its addresses in between. Pure bookkeeping, one thread (the
// executor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

class PhysicalMemory {
 public:
  struct Refund {
    size_t device = 0;
    uint64_t bytes = 0;
    bool operator==(const Refund&) const = default;
  };
  // Empty while handles or mappings remain, or when nothing is known.
  using Refunds = std::vector<Refund>;

  void created(uint64_t handle, size_t device, uint64_t bytes);
  // cuMemRetainAllocationHandle gave `handle` for the memory that is mapped at `address`.
  void retained(uint64_t handle, uint64_t address);
  [[nodiscard]] Refunds released(uint64_t handle);
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle);
  // The driver is about to unmap: the mappings that begin in the range leave the table, and keep
  // their memory until end_unmap() says what became of them.
  using UnmapId = uint64_t;
  UnmapId begin_unmap(uint64_t address, uint64_t bytes);
  [[nodiscard]] Refunds end_unmap(UnmapId id, bool unmapped);

 private:
  struct Memory {
    size_t device = 0;
    uint64_t bytes = 0;
    uint64_t references = 0;  // handles and mappings
  };
  struct Handle {
    std::shared_ptr<Memory> memory;
    uint64_t count = 0;
  };
  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Memory> memory;
  };
  using Mappings = std::map<uint64_t, Mapping>;  // by address
  static std::shared_ptr<Memory> memory_at(const Mappings& mappings, uint64_t address);
  static void drop(Memory& memory, Refunds& refunds);

  std::unordered_map<uint64_t, Handle> handles_;
  Mappings mappings_;
  std::map<UnmapId, Mappings> unmapping_;
  UnmapId next_unmap_ = 1;
};

}  // namespace fargpu::server
