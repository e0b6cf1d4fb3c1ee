// Which memory an address belongs to: an interval map of device memory and one of host memory that
// CUDA knows.
//
// A pointer into the middle of a region finds the region. Regions never overlap. A look-up takes a
// shared lock and copies the region out; one of an address outside of all that was ever inserted
// costs two loads. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>

namespace fargpu::client {

struct Context;
class Session;

enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc, cuMemAllocPitch
  kPool,        // cuMemAllocAsync, cuMemAllocFromPoolAsync
  kVirtual,     // mapped by cuMemMap
  kGlobal,      // a variable of a module or library
  kManaged,     // cuMemAllocManaged: host memory with a mirror in the worker
  kHost,        // cuMemHostAlloc, cuMemAllocHost
  kRegistered,  // cuMemHostRegister
};

struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  Session* session = nullptr;
  Context* context = nullptr;  // null: outlives every context
  int device = 0;              // ordinal among the visible devices of the process
  uint64_t buffer_id = 0;      // CU_POINTER_ATTRIBUTE_BUFFER_ID: never used again
  unsigned flags = 0;          // as given to cuMemHostAlloc and friends
  int handle_types = 0;        // kVirtual, kPool: by which its memory may be exported
  bool granted = false;        // kVirtual: `device` may read and write it (cuMemSetAccess)
  bool used = false;           // kVirtual: an operation on it has succeeded since, of any device
  // SYNC_MEMOPS as set by cuPointerSetAttribute; empty: as the driver has it from the start, set
  // for device memory.
  std::optional<bool> sync_memops{};
  bool reserved = false;  // this process holds an inaccessible mapping at these addresses
  unsigned opened = 0;    // memory of another process: how often cuIpcOpenMemHandle has given it
  // Memory of a graph: the id of the graph whose node makes it, else 0. Its addresses stay known
  // while it is freed and allocated again.
  uint64_t of_graph = 0;
  // Module or library of a kGlobal, pool of a kPool (0: its device's default pool), else 0.
  uint64_t owner = 0;
  // kHost: where device code sees memory shared with the worker; 0: it is not
  uint64_t shared_at = 0;

  // Nothing but the application writes it.
  bool read_only() const {
    return kind == MemoryKind::kRegistered && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  }
};

class AddressMap {
 public:
  // False when it would overlap an existing region or is empty or wraps around.
  bool insert(const Region& region);
  std::optional<Region> find(uint64_t address) const;
  // Whether some of these bytes belong to another session than this one.
  bool overlaps_other(uint64_t address, uint64_t bytes, const Session* session) const;
  bool overlaps(uint64_t address, uint64_t bytes) const;
  // Removes the region that begins at `base`.
  std::optional<Region> erase(uint64_t base);
  // Sets `used` of the regions that [address, address + bytes) touches.
  void mark_used(uint64_t address, uint64_t bytes);
  void erase_if(const std::function<bool(const Region&)>& gone);
  // Changes the region of `address`; false: there is none.
  bool change(uint64_t address, const std::function<void(Region&)>& change);
  // How many bytes from `address` on are inside regions of one session and kind that touch each
  // other. Of mapped memory the driver takes them for one, and only of that.
  struct Extent {
    uint64_t bytes = 0;
    Session* session = nullptr;
  };
  Extent extent(uint64_t address) const;
  bool covers(uint64_t address, uint64_t bytes) const { return bytes <= extent(address).bytes; }
  // Changes regions; not where they are.
  void update(const std::function<void(Region&)>& change);
  void for_each(const std::function<void(const Region&)>& visit) const;
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }  // without a lock

 private:
  using Map = std::map<uint64_t, Region>;
  Map::const_iterator locate(uint64_t address) const;  // needs the lock
  mutable std::shared_mutex mutex_;
  Map regions_;
  std::atomic<size_t> count_{0};  // of regions_, written under the lock
  // Where all that was ever inserted lies. Written under the lock.
  std::atomic<uint64_t> lowest_{UINT64_MAX}, end_{0};
};

}  // namespace fargpu::client
