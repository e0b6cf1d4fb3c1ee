#include "sim/driver/interprocess.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "sim/driver/address_space.h"
#include "sim/driver/driver.h"
#include "sim/driver/physical_memory.h"
#include "sim/driver/pool.h"
#include "sim/memory/host_usage.h"
#include "sim/memory/reservation.h"

namespace fargpu::sim {
namespace {

constexpr uint32_t kMemoryMagic = 0x6d697067, kEventMagic = 0x65697067, kPointerMagic = 0x70697067;
constexpr uint64_t kPage = 4096;

struct EventName {
  uint32_t magic;
  int32_t process;
  int32_t page;
  uint32_t unused;
  uint64_t key;
};
static_assert(sizeof(EventName) <= sizeof(CUipcEventHandle));

uint64_t new_key() {
  uint64_t key = 0;
  if (getrandom(&key, sizeof key, 0) != sizeof key) return 0;
  return key | 1;
}

// A descriptor of another process of this user.
Fd open_of(int32_t process, int32_t descriptor, int flags) {
  return Fd(open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), flags | O_CLOEXEC));
}

}  // namespace

// What a handle of memory holds.
struct Interprocess::Name {
  uint32_t magic;
  int32_t process;
  int32_t exports, file;  // descriptors of it
  uint64_t key;           // of its exports
  uint64_t id;            // the allocation's
  uint64_t offset, bytes;
  uint32_t slot;
  int32_t index;  // of the GPU
  uint64_t pool;  // the key of its pool; 0: it is of none
};

Result<SharedEvent> SharedEvent::create() {
  FARGPU_ASSIGN_OR_RETURN(auto page, SharedValue<Page>::create("fargpu-sim-event"));
  page->key.store(new_key());
  return SharedEvent(std::move(page));
}

Result<SharedEvent> SharedEvent::open(Fd file, uint64_t key) {
  FARGPU_ASSIGN_OR_RETURN(auto page, SharedValue<Page>::open(std::move(file)));
  if (page->key.load() != key) return Status(StatusCode::kNotFound, "not that event any more");
  return SharedEvent(std::move(page));
}

namespace {

void raise_to(std::atomic<uint64_t>& number, uint64_t to) {
  uint64_t before = number.load();
  while (before < to && !number.compare_exchange_weak(before, to)) {
  }
}

}  // namespace

uint64_t SharedEvent::begin_record() const {
  const uint64_t record = page_->begun.fetch_add(1) + 1;
  place_of(record).process.store(getpid());
  raise_to(page_->submitted, record);
  return record;
}

void SharedEvent::reached(uint64_t record) const { raise_to(place_of(record).reached, record); }

uint64_t SharedEvent::newest() const { return page_->submitted.load(); }
uint64_t SharedEvent::key() const { return page_->key.load(); }

bool SharedEvent::is_reached(uint64_t record) const {
  const Record& place = place_of(record);
  if (place.reached.load() >= record) return true;
  return kill(place.process.load(), 0) != 0 && errno == ESRCH;
}

void SharedEvent::wait(uint64_t record) const {
  while (!is_reached(record)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool Interprocess::begin() {
  if (exports_) return true;
  auto page = SharedValue<Exports>::create("fargpu-sim-exports");
  if (!page.ok()) return false;
  (*page)->key.store(new_key());
  if (const auto& usage = Driver::get().host_usage()) usage->export_as((*page)->key.load());
  exports_.emplace(std::move(*page));
  return true;
}

CUresult Interprocess::name_memory(const Allocation& allocation, Name* name) {
  std::lock_guard lock(mutex_);
  if (opened_.contains(allocation.base)) return CUDA_ERROR_INVALID_VALUE;
  if (!begin()) return CUDA_ERROR_OPERATING_SYSTEM;
  auto known = slots_.find(allocation.buffer_id);
  if (known == slots_.end()) {
    size_t slot = 0;
    while (slot < kSlots && (*exports_)->live[slot].load() != 0) ++slot;
    if (slot == kSlots) return CUDA_ERROR_OUT_OF_MEMORY;
    (*exports_)->live[slot].store(allocation.buffer_id);
    known = slots_.emplace(allocation.buffer_id, slot).first;
  }
  Device& device = *Driver::get().device(allocation.device);
  *name = {kMemoryMagic,
           getpid(),
           exports_->descriptor(),
           device.memory().descriptor(),
           (*exports_)->key.load(),
           allocation.buffer_id,
           device.memory().offset_of(allocation.base),
           allocation.bytes,
           static_cast<uint32_t>(known->second),
           device.index(),
           0};
  return CUDA_SUCCESS;
}

CUresult Interprocess::export_memory(const Allocation& allocation, CUipcMemHandle* handle) {
  static_assert(sizeof(Name) <= sizeof *handle);
  Name name{};
  if (CUresult result = name_memory(allocation, &name); result != CUDA_SUCCESS) return result;
  *handle = {};
  std::memcpy(handle, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUresult Interprocess::open_memory(Allocation as, const CUipcMemHandle& handle,
                                   CUdeviceptr* address) {
  Name name{};
  std::memcpy(&name, &handle, sizeof name);
  if (name.magic != kMemoryMagic) return CUDA_ERROR_INVALID_VALUE;
  if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as the driver answers
  as.readable = as.writable = 1u << as.device;
  return map_memory(name, as, address);
}

CUresult Interprocess::export_pointer(const Allocation& allocation, const Pool& pool,
                                      CUmemPoolPtrExportData* data) {
  static_assert(sizeof(Name) <= sizeof *data);
  Name name{};
  if (CUresult result = name_memory(allocation, &name); result != CUDA_SUCCESS) return result;
  name.magic = kPointerMagic;
  name.pool = pool.shared()->key();
  *data = {};
  std::memcpy(data, &name, sizeof name);
  return CUDA_SUCCESS;
}

CUresult Interprocess::import_pointer(const Pool& pool, const CUmemPoolPtrExportData& data,
                                      CUdeviceptr* address) {
  Name name{};
  std::memcpy(&name, &data, sizeof name);
  if (name.magic != kPointerMagic || name.pool != pool.shared()->key())
    return CUDA_ERROR_INVALID_VALUE;
  Allocation as;
  as.pool = pool.handle();
  as.readable = as.writable = pool.access_mask();
  return map_memory(name, as, address);
}

std::shared_ptr<Pool> Interprocess::imported_pool(uint64_t key) {
  std::lock_guard lock(mutex_);
  const auto found = imported_pools_.find(key);
  const auto pool = found == imported_pools_.end() ? nullptr : found->second.lock();
  return pool && !pool->retired() ? pool : nullptr;
}

void Interprocess::enter_imported(const std::shared_ptr<Pool>& pool) {
  std::lock_guard lock(mutex_);
  imported_pools_[pool->shared()->key()] = pool;
}

CUresult Interprocess::map_memory(const Name& name, Allocation as, CUdeviceptr* address) {
  if (name.slot >= kSlots) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  for (auto& [base, opened] : opened_) {
    if (opened.key != name.key || opened.id != name.id) continue;
    ++opened.count;
    Driver::get().allocations().add_access(base, as.readable);
    *address = base;
    return CUDA_SUCCESS;
  }
  auto exports = SharedValue<Exports>::open(open_of(name.process, name.exports, O_RDWR));
  if (!exports.ok() || (*exports)->key.load() != name.key ||
      (*exports)->live[name.slot].load() != name.id) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Fd file = open_of(name.process, name.file, O_RDWR);
  Driver& driver = Driver::get();
  Device* device = nullptr;
  for (const auto& each : driver.devices())
    if (each->index() == name.index) device = each.get();
  if (!file.valid() || device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t first = name.offset / kPage * kPage, inside = name.offset - first;
  const uint64_t bytes =
      (inside + name.bytes + kMappingGranularity - 1) / kMappingGranularity * kMappingGranularity;
  uint64_t reserved = 0;
  if (CUresult result = driver.addresses().reserve(bytes, 0, 0, &reserved); result != CUDA_SUCCESS)
    return result;
  const uint64_t mapped = (inside + name.bytes + kPage - 1) / kPage * kPage;
  as.base = reserved + inside;
  as.bytes = name.bytes;
  as.device = device->ordinal();
  as.readable = as.writable = as.readable | (1u << as.device);
  as.opened = true;
  if (mmap(reinterpret_cast<void*>(reserved), mapped, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, file.get(), static_cast<off_t>(first)) == MAP_FAILED ||
      !driver.allocations().insert(as)) {
    driver.addresses().free(reserved, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  opened_[as.base] = {reserved, bytes, 1, name.key, name.id};
  if (const auto& usage = driver.host_usage())
    usage->opened(name.key, name.id, device->index(), name.bytes);
  *address = as.base;
  return CUDA_SUCCESS;
}

CUresult Interprocess::close_memory(CUdeviceptr address) {
  Opened closed;
  {
    std::lock_guard lock(mutex_);
    const auto found = opened_.find(address);
    if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.count > 0) return CUDA_SUCCESS;
    closed = found->second;
    opened_.erase(found);
    if (const auto& usage = Driver::get().host_usage()) usage->closed(closed.key, closed.id);
    Driver::get().allocations().erase(address);
  }
  Driver::get().addresses().free(closed.reserved, closed.bytes);
  return CUDA_SUCCESS;
}

bool Interprocess::is_shared() {
  std::lock_guard lock(mutex_);
  return !slots_.empty() || !opened_.empty();
}

int Interprocess::times_open(CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  const auto found = opened_.find(address);
  return found == opened_.end() ? 0 : found->second.count;
}

void Interprocess::ended(const Allocation& allocation) {
  std::lock_guard lock(mutex_);
  if (allocation.opened) {
    const auto opened = opened_.extract(allocation.base);
    if (opened.empty()) return;
    if (const auto& usage = Driver::get().host_usage())
      usage->closed(opened.mapped().key, opened.mapped().id);
    // free() takes the mapping away with the addresses.
    Driver::get().addresses().free(opened.mapped().reserved, opened.mapped().bytes);
  } else if (const auto slot = slots_.extract(allocation.buffer_id); !slot.empty()) {
    (*exports_)->live[slot.mapped()].store(0);
    if (const auto& usage = Driver::get().host_usage()) usage->freed(allocation.buffer_id);
  }
}

CUresult Interprocess::export_event(const SharedEvent& event, CUipcEventHandle* handle) {
  const EventName name{kEventMagic, getpid(), event.descriptor(), 0, event.key()};
  *handle = {};
  std::memcpy(handle, &name, sizeof name);
  return CUDA_SUCCESS;
}

std::optional<SharedEvent> Interprocess::open_event(const CUipcEventHandle& handle,
                                                    CUresult* result) {
  EventName name{};
  std::memcpy(&name, &handle, sizeof name);
  *result = CUDA_ERROR_MAP_FAILED;  // as the driver answers
  if (name.magic != kEventMagic) return std::nullopt;
  if (name.process == getpid()) {
    *result = CUDA_ERROR_INVALID_CONTEXT;  // as the driver answers
    return std::nullopt;
  }
  auto event = SharedEvent::open(open_of(name.process, name.page, O_RDWR), name.key);
  if (!event.ok()) return std::nullopt;
  *result = CUDA_SUCCESS;
  return std::move(*event);
}

}  // namespace fargpu::sim
