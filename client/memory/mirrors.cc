#include "client/memory/mirrors.h"

#include <algorithm>
#include <cstring>

namespace fargpu::client {

void Mirrors::add(uint64_t address, size_t bytes, uint64_t device_pointer) {
  std::lock_guard lock(mutex_);
  mirrors_[address].bytes = bytes;
  mirrors_[address].device_pointer = device_pointer;
  any_.store(true, std::memory_order_relaxed);
}

bool Mirrors::remove(uint64_t address) {
  std::lock_guard lock(mutex_);
  const bool found = mirrors_.erase(address) != 0;
  any_.store(!mirrors_.empty(), std::memory_order_relaxed);
  return found;
}

std::optional<uint64_t> Mirrors::device_pointer(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = mirrors_.find(address);
  if (found == mirrors_.end()) return std::nullopt;
  return found->second.device_pointer;
}

CUresult Mirrors::push(const Wire& wire) {
  std::lock_guard lock(mutex_);
  for (auto& [address, mirror] : mirrors_) {
    if (const CUresult result = push_one(address, mirror, wire); result != CUDA_SUCCESS)
      return result;
    mirror.device_may_have_written = true;
  }
  return CUDA_SUCCESS;
}

CUresult Mirrors::push_one(uint64_t address, Mirror& mirror, const Wire& wire) {
  const auto* host = reinterpret_cast<const std::byte*>(address);
  if (mirror.shadow.empty()) {
    mirror.shadow.assign(host, host + mirror.bytes);
    return wire.push(address, mirror.shadow.data(), mirror.bytes);
  }
  // Runs of changed pages. The shadow, not the application's memory, is what is sent: it may change
  // meanwhile.
  size_t at = 0;
  while (at < mirror.bytes) {
    const auto changed = [&](size_t offset) {
      const size_t n = std::min(kPage, mirror.bytes - offset);
      return std::memcmp(host + offset, mirror.shadow.data() + offset, n) != 0;
    };
    if (!changed(at)) {
      at += kPage;
      continue;
    }
    size_t end = at + kPage;
    while (end < mirror.bytes && changed(end)) end += kPage;
    end = std::min(end, mirror.bytes);
    std::memcpy(mirror.shadow.data() + at, host + at, end - at);
    if (const CUresult result = wire.push(address + at, mirror.shadow.data() + at, end - at);
        result != CUDA_SUCCESS) {
      return result;
    }
    at = end;
  }
  return CUDA_SUCCESS;
}

CUresult Mirrors::pull(const Wire& wire, bool all_done) {
  std::lock_guard lock(mutex_);
  for (auto& [address, mirror] : mirrors_) {
    if (!mirror.device_may_have_written) continue;
    if (const CUresult result = pull_one(address, mirror, wire); result != CUDA_SUCCESS)
      return result;
    if (all_done) mirror.device_may_have_written = false;
  }
  return CUDA_SUCCESS;
}

CUresult Mirrors::pull_one(uint64_t address, Mirror& mirror, const Wire& wire) {
  std::vector<std::byte> fresh(mirror.bytes);
  if (const CUresult result = wire.pull(address, fresh.data(), fresh.size());
      result != CUDA_SUCCESS) {
    return result;
  }
  auto* host = reinterpret_cast<std::byte*>(address);
  for (size_t page = 0; page < mirror.bytes; page += kPage) {
    const size_t n = std::min(kPage, mirror.bytes - page);
    std::byte* shadow = mirror.shadow.data() + page;
    if (std::memcmp(shadow, fresh.data() + page, n) == 0) continue;
    for (size_t i = 0; i < n; ++i) {
      if (shadow[i] == fresh[page + i]) continue;  // the device left it: the host's value stays
      host[page + i] = fresh[page + i];
      shadow[i] = fresh[page + i];
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
