#include "sim/memory/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/base/log.h"
#include "sim/base/settings.h"
#include "sim/memory/host_usage.h"
#include "sim/memory/reservation.h"

namespace fargpu::sim {
namespace {

// What textures ask of an address (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT).
constexpr uint64_t kAlignment = 512;
constexpr uint64_t kGuard = 256;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kCommitStep = uint64_t{32} << 20;
constexpr uint64_t kWindowBytes = uint64_t{1} << 36;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

// The window is larger than the memory, so that gaps and fragments never make it run out first.
DeviceMemory::DeviceMemory(int index, size_t total_bytes, int slot, std::shared_ptr<HostUsage> host,
                           int unit)
    : total_(total_bytes), host_(std::move(host)), unit_(unit) {
  const uint64_t bytes = std::max(kWindowBytes, std::bit_ceil(uint64_t{total_bytes}) * 2);
  begin_ = reserve_at(memory_begin(slot) + static_cast<uint64_t>(index) * bytes, bytes);
  if (begin_ == 0) begin_ = reserve_anywhere(bytes, kPage);
  if (begin_ == 0) {
    log::error(
        "cannot reserve {} bytes of addresses for simulated GPU {}: {}; raise the limit on virtual "
        "memory",
        bytes, index, std::strerror(errno));
    return;
  }
  file_.reset(memfd_create("fargpu-sim-device", MFD_CLOEXEC));
  if (!file_.valid()) {
    log::error("cannot make the memory file of simulated GPU {}: {}", index, std::strerror(errno));
    return;
  }
  end_ = begin_ + bytes;
  committed_ = begin_;
  // The first page stays unused: an offset from a null base must not hit an allocation.
  ranges_.emplace(begin_ + kPage, end_);
}

bool DeviceMemory::commit(uint64_t end) {
  if (end <= committed_) return true;
  const uint64_t target = std::min(round_up(end, kCommitStep), end_);
  const uint64_t offset = committed_ - begin_;
  if (ftruncate(file_.get(), static_cast<off_t>(target - begin_)) != 0 ||
      mmap(reinterpret_cast<void*>(committed_), target - committed_, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_.get(),
           static_cast<off_t>(offset)) == MAP_FAILED) {
    log::error("cannot commit {} bytes of simulated device memory: {}", target - committed_,
               std::strerror(errno));
    return false;
  }
  committed_ = target;
  return true;
}

uint64_t DeviceMemory::find_range(uint64_t charged) {
  if (!ranges_) return 0;
  const auto address =
      ranges_->allocate(charged + kGuard, charged >= 16 * kPage ? kPage : kAlignment);
  if (!address) return 0;
  if (!commit(*address + charged)) {
    ranges_->free(*address, charged + kGuard);
    return 0;
  }
  return *address;
}

uint64_t DeviceMemory::allocate(uint64_t bytes) {
  const uint64_t charged = round_up(bytes, kAlignment);
  if (bytes == 0 || charged < bytes) return 0;
  std::lock_guard lock(mutex_);
  if (!take(charged)) return 0;
  const uint64_t address = find_range(charged);
  if (address == 0) give_up(charged);
  return address;
}

uint64_t DeviceMemory::reserve(uint64_t bytes) {
  const uint64_t charged = round_up(bytes, kAlignment);
  if (bytes == 0 || charged < bytes || charged > total_) return 0;
  std::lock_guard lock(mutex_);
  return find_range(charged);
}

void DeviceMemory::give_back(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  drop_range(address, round_up(bytes, kAlignment));
}

void DeviceMemory::free(uint64_t address, uint64_t bytes) {
  const uint64_t charged = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  drop_range(address, charged);
  give_up(charged);
}

void DeviceMemory::drop_range(uint64_t address, uint64_t charged) {
  const uint64_t first = round_up(address, kPage);
  const uint64_t last = (address + charged) / kPage * kPage;
  if (last > first && last - first >= 16 * kPage) {
    madvise(reinterpret_cast<void*>(first), last - first, MADV_REMOVE);
  }
  ranges_->free(address, charged + kGuard);
}

bool DeviceMemory::charge(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return take(bytes);
}

void DeviceMemory::refund(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  give_up(bytes);
}

bool DeviceMemory::take(uint64_t bytes) {
  if (bytes > total_ - used_ || (host_ && !host_->take(unit_, bytes, total_))) return false;
  used_ += bytes;
  return true;
}

void DeviceMemory::give_up(uint64_t bytes) {
  used_ -= bytes;
  if (host_) host_->give_back(unit_, bytes);
}

size_t DeviceMemory::available() const {
  std::lock_guard lock(mutex_);
  const uint64_t used = host_ ? host_->used(unit_) : used_;
  return total_ - std::min<uint64_t>(used, total_);
}

}  // namespace fargpu::sim
