#include "sim/context/context_memory.h"

#include <cstring>

#include "sim/context/texture_object.h"
#include "sim/driver/driver.h"
#include "sim/memory/allocation_map.h"
#include "sim/memory/device_memory.h"

namespace fargpu::sim {

ContextMemory::ContextMemory(AllocationMap& allocations, DeviceMemory& memory, int device,
                             uint64_t context)
    : allocations_(allocations), memory_(memory), device_(device), context_(context) {}

std::optional<MemoryMap::Range> ContextMemory::find(uint64_t address, size_t bytes) const {
  const auto found = allocations_.find(address);
  if (!found || bytes > found->end() - address) return std::nullopt;
  Range range{found->base, found->bytes, true};
  const bool has_right = ((found->readable >> device_) & 1) != 0;
  switch (found->kind) {
    case Allocation::Kind::kDevice:
      // Memory of pools and graphs has access rights of its own; other memory goes by the context's
      // peers, and what was opened, by the devices that opened it, too.
      if (found->graph && !has_right) return std::nullopt;
      if (found->graph || found->device == device_) break;
      if (found->pool != 0 ? !has_right
                           : !(found->opened && has_right) && !peer_enabled(found->device)) {
        return std::nullopt;
      }
      break;
    case Allocation::Kind::kMapped:
      if (!has_right) return std::nullopt;
      range.writable = (found->writable >> device_) & 1;
      break;
    case Allocation::Kind::kRegistered:
      range.writable = found->writable != 0;
      break;
    case Allocation::Kind::kPinned:
    case Allocation::Kind::kManaged:
      break;
  }
  return range;
}

uint64_t ContextMemory::allocate(size_t bytes) {
  if (bytes == 0) bytes = 1;
  const uint64_t address = memory_.allocate(bytes);
  if (address == 0) return 0;
  std::memset(reinterpret_cast<void*>(address), 0, bytes);
  Allocation allocation;
  allocation.base = address;
  allocation.bytes = bytes;
  allocation.device = device_;
  allocation.context = context_;
  allocations_.insert(allocation);
  std::lock_guard lock(mutex_);
  own_.insert(address);
  return address;
}

void ContextMemory::release(uint64_t address) {
  {
    std::lock_guard lock(mutex_);
    if (own_.erase(address) == 0) return;
  }
  if (auto allocation = allocations_.erase(address)) memory_.free(address, allocation->bytes);
}

// Values of all contexts are unique, so none is that of another one by chance.
std::shared_ptr<const Texture> ContextMemory::texture(uint64_t value) const {
  const auto object = Driver::get().registry().find<TextureObject>(value);
  return object == nullptr ? Driver::get().retired_images().texture(value) : object->texture;
}

std::shared_ptr<const Surface> ContextMemory::surface(uint64_t value) const {
  const auto object = Driver::get().registry().find<SurfaceObject>(value);
  return object == nullptr ? Driver::get().retired_images().surface(value) : object->surface;
}

void ContextMemory::abandon() {
  std::lock_guard lock(mutex_);
  own_.clear();
}

}  // namespace fargpu::sim
