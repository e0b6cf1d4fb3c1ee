// PhysicalMemory: memory of cuMemCreate, of this or another session of the job, in the ledger's
// view. The driver frees such memory when its last handle is released and its last mapping is gone.
// Only then is it refunded, to the device on which it was made. An unmapping that takes long is
// announced before and after, because the driver may map other memory at its addresses in between.
// Pure bookkeeping, one thread (the executor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

class PhysicalMemory {
 public:
  struct Refund {
    size_t device = 0;
    uint64_t bytes = 0;
    uint64_t shared = 0;  // as share() and imported() have named it; 0: neither
    bool operator==(const Refund&) const = default;
  };
  // Empty while handles or mappings remain, or when nothing is known.
  using Refunds = std::vector<Refund>;

  void created(uint64_t handle, size_t device, uint64_t bytes);

  // --- memory that several sessions have: the one that made it is charged
  // A number for the memory of `handle`, never used again; 0: it is not known.
  uint64_t share(uint64_t handle);
  // The handle by which the driver finds it: one of its handles, or an address where it is mapped.
  struct Reach {
    uint64_t handle = 0, address = 0;
  };
  std::optional<Reach> reach(uint64_t shared) const;
  // The charge in this session.
  uint64_t bytes(uint64_t shared) const;
  // Memory of another session has got `handle` here. The number that it has from now on.
  uint64_t imported(uint64_t handle, size_t device);
  // Known memory has got one more handle. False: there is no such memory any more.
  bool imported_again(uint64_t handle, uint64_t shared);
  // The session that made it does not pay for it any more: it is refunded here at its end.
  bool take_over(uint64_t shared, uint64_t bytes);
  // cuMemRetainAllocationHandle gave `handle` for the memory that is mapped at `address`.
  void retained(uint64_t handle, uint64_t address);
  [[nodiscard]] Refunds released(uint64_t handle);
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle);
  // One more user that has neither handle nor address: a tile of an array. nullptr: no such memory.
  struct Memory;
  using User = std::shared_ptr<Memory>;
  User use(uint64_t handle);
  [[nodiscard]] Refunds end_use(const std::vector<User>& users);
  // The driver is about to unmap: the mappings that begin in the range leave the table, and keep
  // their memory until end_unmap() has the driver's result.
  using UnmapId = uint64_t;
  UnmapId begin_unmap(uint64_t address, uint64_t bytes);
  [[nodiscard]] Refunds end_unmap(UnmapId id, bool unmapped);

 private:
  struct Handle {
    std::shared_ptr<Memory> memory;
    uint64_t count = 0;
    bool is_import = false;  // a driver may not export it again
  };
  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<Memory> memory;
  };
  using Mappings = std::map<uint64_t, Mapping>;  // by address
  static std::shared_ptr<Memory> memory_at(const Mappings& mappings, uint64_t address);
  void drop(Memory& memory, Refunds& refunds);
  std::shared_ptr<Memory> find_shared(uint64_t shared) const;
  void add_handle(uint64_t handle, const std::shared_ptr<Memory>& memory);

  std::unordered_map<uint64_t, Handle> handles_;
  std::unordered_map<uint64_t, std::weak_ptr<Memory>> shared_;  // by number
  uint64_t next_shared_ = 1;
  Mappings mappings_;
  std::map<UnmapId, Mappings> unmapping_;
  UnmapId next_unmap_ = 1;
};

struct PhysicalMemory::Memory {
  size_t device = 0;
  uint64_t bytes = 0;
  uint64_t references = 0;  // handles, mappings and other users
  uint64_t shared = 0;
};

}  // namespace fargpu::server
