// Physical memory of virtual memory management: bytes of a device that have no address until they
// are mapped, at several addresses if wanted. They lie in one memory file per device; exportable
// memory has a file of its own.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "sim/base/registry.h"
#include "sim/memory/range_allocator.h"
#include "sim/memory/shared_file.h"

namespace fargpu::sim {

class Device;

constexpr uint64_t kMappingGranularity = uint64_t{2} << 20;

// The memory file of one device. Thread safe.
class PhysicalStore {
 public:
  explicit PhysicalStore(uint64_t bytes) : bytes_(bytes) {}
  // Offset of `bytes` zeroed bytes; nullopt: no file, or it is full.
  std::optional<uint64_t> allocate(uint64_t bytes);
  void free(uint64_t offset, uint64_t bytes);
  int descriptor() const { return descriptor_; }

 private:
  const uint64_t bytes_;
  std::mutex mutex_;
  int descriptor_ = -1;  // opened by the first allocate(), never closed
  std::optional<RangeAllocator> ranges_;
};

// One cuMemCreate, or an import of one. Freed when neither a handle nor a mapping is left.
class PhysicalMemory {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kPhysicalMemory;

  // nullptr: out of memory.
  static std::shared_ptr<PhysicalMemory> create(Device& device, uint64_t bytes,
                                                const CUmemAllocationProp& properties);
  // Memory that another process, or this one, has exported. It is charged to its maker alone.
  static std::shared_ptr<PhysicalMemory> import(Device& device, SharedFile file);
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  Device& device() const { return device_; }
  uint64_t bytes() const { return bytes_; }
  const CUmemAllocationProp& properties() const { return properties_; }
  // A descriptor for other processes; -1: it was not made for them here, or there is no room for
  // one.
  int export_descriptor() const { return is_shareable() ? shared_->duplicate() : -1; }
  bool is_shareable() const { return shared_ && !imported_; }
  // Puts the bytes from `offset` on at an address inside a reservation.
  bool map_at(uint64_t address, uint64_t bytes, uint64_t offset) const;
  // The bytes themselves, for memory without an address on the GPU; nullptr: there is no room for
  // them.
  uint8_t* bytes_at(uint64_t offset);

  // --- the handle; a released one can come back through cuMemRetainAllocationHandle
  uint64_t retain(const std::shared_ptr<PhysicalMemory>& self);
  // False: no such reference.
  bool release();

 private:
  PhysicalMemory(Device& device, uint64_t bytes, uint64_t offset,
                 const CUmemAllocationProp& properties)
      : device_(device), bytes_(bytes), offset_(offset), properties_(properties) {}
  PhysicalMemory(Device& device, SharedFile file, bool imported);

  Device& device_;
  const uint64_t bytes_;
  const uint64_t offset_;  // in its file
  const CUmemAllocationProp properties_;
  const std::optional<SharedFile> shared_;  // instead of the device's store
  const bool imported_ = false;
  std::mutex mutex_;
  uint64_t handle_ = 0;
  int references_ = 0;
  uint8_t* bytes_of_all_ = nullptr;  // made when they are asked for
};

}  // namespace fargpu::sim
