#include "sim/driver/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/log.h"
#include "sim/driver/device.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {

std::optional<uint64_t> PhysicalStore::allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (descriptor_ < 0) {
    descriptor_ = memfd_create("fargpu-sim", MFD_CLOEXEC);
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0) {
      log::error("cannot make the memory file of a simulated GPU: {}", std::strerror(errno));
      return std::nullopt;
    }
    ranges_.emplace(0, bytes_);
  }
  return ranges_ ? ranges_->allocate(bytes, kMappingGranularity) : std::nullopt;
}

void PhysicalStore::free(uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  ranges_->free(offset, bytes);
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::create(Device& device, uint64_t bytes,
                                                       const CUmemAllocationProp& properties) {
  if (!device.memory().charge(bytes)) return nullptr;
  if (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    auto file = SharedFile::create(bytes, device.index(), properties);
    if (file.ok())
      return std::shared_ptr<PhysicalMemory>(new PhysicalMemory(device, std::move(*file), false));
    log::error("{}", file.status().message());
    device.memory().refund(bytes);
    return nullptr;
  }
  const auto offset = device.physical_store().allocate(bytes);
  if (!offset) {
    device.memory().refund(bytes);
    return nullptr;
  }
  return std::shared_ptr<PhysicalMemory>(new PhysicalMemory(device, bytes, *offset, properties));
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::import(Device& device, SharedFile file) {
  return std::shared_ptr<PhysicalMemory>(new PhysicalMemory(device, std::move(file), true));
}

PhysicalMemory::PhysicalMemory(Device& device, SharedFile file, bool imported)
    : device_(device),
      bytes_(file.bytes()),
      offset_(0),
      properties_([&] {
        CUmemAllocationProp properties = file.properties();
        properties.location.id = device.ordinal();
        // An importer cannot export it again.
        if (imported) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        return properties;
      }()),
      shared_(std::move(file)),
      imported_(imported) {}

PhysicalMemory::~PhysicalMemory() {
  if (bytes_of_all_ != nullptr) munmap(bytes_of_all_, bytes_);
  if (!shared_) device_.physical_store().free(offset_, bytes_);
  if (!imported_) device_.memory().refund(bytes_);
}

bool PhysicalMemory::map_at(uint64_t address, uint64_t bytes, uint64_t offset) const {
  return mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED,
              shared_ ? shared_->descriptor() : device_.physical_store().descriptor(),
              static_cast<off_t>(offset_ + offset)) != MAP_FAILED;
}

uint8_t* PhysicalMemory::bytes_at(uint64_t offset) {
  std::lock_guard lock(mutex_);
  if (bytes_of_all_ == nullptr) {
    void* const all = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                           shared_ ? shared_->descriptor() : device_.physical_store().descriptor(),
                           static_cast<off_t>(offset_));
    if (all == MAP_FAILED) return nullptr;
    bytes_of_all_ = static_cast<uint8_t*>(all);
  }
  return bytes_of_all_ + offset;
}

uint64_t PhysicalMemory::retain(const std::shared_ptr<PhysicalMemory>& self) {
  std::lock_guard lock(mutex_);
  if (references_++ == 0) handle_ = Driver::get().registry().add(self, 0);
  return handle_;
}

bool PhysicalMemory::release() {
  std::lock_guard lock(mutex_);
  if (references_ == 0) return false;
  if (--references_ == 0) Driver::get().registry().remove<PhysicalMemory>(handle_);
  return true;
}

}  // namespace fargpu::sim
