#include "server/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "common/base/log.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr size_t kSmallestSlot = size_t{256} << 10;
constexpr size_t kIdleBytes = size_t{128} << 20;  // kept for later
constexpr auto kLongestWait = std::chrono::seconds(10);

size_t rounded(size_t bytes) { return std::bit_ceil(std::max(bytes, kSmallestSlot)); }

}  // namespace

StagingSlot::~StagingSlot() { ::munmap(memory_, bytes_); }

std::unique_ptr<StagingSlot> Staging::take(size_t bytes, uint64_t context_serial, bool may_wait) {
  const size_t size = rounded(bytes);
  reclaim();
  if (may_wait && bytes_in_use_ + size > kUsualBytes) wait_for_room(size);
  if (bytes_in_use_ + size > kMostBytes) return nullptr;
  const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const auto& slot) { return slot->size() == size; });
  std::unique_ptr<StagingSlot> slot;
  if (fits != idle_.end()) {
    slot = std::move(*fits);
    idle_.erase(fits);
    idle_bytes_ -= size;
  } else {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    slot = std::make_unique<StagingSlot>(static_cast<std::byte*>(memory), size);
  }
  if (slot->registered_in_ == 0 && context_serial != 0 && driver_.cuMemHostRegister_v2 != nullptr &&
      driver_.cuMemHostRegister_v2(slot->memory_, slot->bytes_, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS) {
    slot->registered_in_ = context_serial;
  }
  bytes_in_use_ += size;
  return slot;
}

void Staging::give_back(std::unique_ptr<StagingSlot> slot) {
  bytes_in_use_ -= slot->size();
  if (std::find(gone_.begin(), gone_.end(), slot->registered_in_) != gone_.end()) slot->registered_in_ = 0;
  if (idle_bytes_ + slot->size() > kIdleBytes) {
    if (slot->registered_in_ != 0) driver_.cuMemHostUnregister(slot->memory_);
    return;
  }
  idle_bytes_ += slot->size();
  idle_.push_back(std::move(slot));
}

void Staging::give_back_after(std::unique_ptr<StagingSlot> slot, uint64_t context_serial, CUevent event) {
  busy_.push_back({std::move(slot), context_serial, event});
}

void Staging::reclaim() {
  // Oldest first; streams differ, so one that is not done says nothing about those behind it.
  for (auto busy = busy_.begin(); busy != busy_.end();) {
    if (driver_.cuEventQuery(busy->event) == CUDA_ERROR_NOT_READY) {
      ++busy;
      continue;
    }
    fences_.give_back(busy->context_serial, busy->event);
    give_back(std::move(busy->slot));
    busy = busy_.erase(busy);
  }
}

void Staging::wait_for_room(size_t bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (!busy_.empty() && bytes_in_use_ + bytes > kUsualBytes && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    reclaim();
  }
}

void Staging::forget_context(uint64_t context_serial) {
  gone_.push_back(context_serial);
  for (auto busy = busy_.begin(); busy != busy_.end();) {
    if (busy->context_serial != context_serial) {
      ++busy;
      continue;
    }
    // The driver may still read the slot until the context is destroyed: its memory stays until then.
    bytes_in_use_ -= busy->slot->size();
    parked_.push_back(std::move(busy->slot));
    busy = busy_.erase(busy);
  }
  for (const auto& slot : idle_) {
    if (slot->registered_in_ != context_serial) continue;
    driver_.cuMemHostUnregister(slot->memory_);
    slot->registered_in_ = 0;
  }
}

}  // namespace fargpu::server
