#include "server/host_mirror.h"

#include <sys/mman.h>

#include "common/base/map_exactly.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAddressEnd = uint64_t{1} << 47;  // user addresses on x86-64

std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

HostMirror::~HostMirror() {
  for (const auto& [address, bytes] : mirrors_) release(address, bytes);
}

CUresult HostMirror::map(uint64_t address, size_t bytes, CUdeviceptr* device_pointer) {
  if (driver_.cuMemHostRegister_v2 == nullptr || driver_.cuMemHostGetDevicePointer_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (address == 0 || address % kPage != 0 || bytes == 0 || bytes > kMaxBytes ||
      address > kAddressEnd - kMaxBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  if (total_bytes_ + rounded > kMaxBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const memory = pointer(address);
  if (!map_exactly(memory, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS))
    return CUDA_ERROR_ALREADY_MAPPED;
  CUresult result = driver_.cuMemHostRegister_v2(
      memory, rounded, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuMemHostGetDevicePointer_v2(device_pointer, memory, 0);
    if (result != CUDA_SUCCESS) driver_.cuMemHostUnregister(memory);
  }
  if (result != CUDA_SUCCESS) {
    munmap(memory, rounded);
    return result;
  }
  mirrors_.emplace(address, rounded);
  total_bytes_ += rounded;
  return CUDA_SUCCESS;
}

CUresult HostMirror::unmap(uint64_t address) {
  const auto found = mirrors_.find(address);
  if (found == mirrors_.end()) return CUDA_ERROR_NOT_MAPPED;
  release(found->first, found->second);
  total_bytes_ -= found->second;
  mirrors_.erase(found);
  return CUDA_SUCCESS;
}

std::span<std::byte> HostMirror::find(uint64_t address, size_t bytes) {
  auto after = mirrors_.upper_bound(address);
  if (after == mirrors_.begin()) return {};
  const auto& [base, length] = *std::prev(after);
  const uint64_t offset = address - base;
  if (offset > length || bytes > length - offset) return {};
  return {pointer(address), bytes};
}

void HostMirror::release(uint64_t address, size_t bytes) {
  driver_.cuMemHostUnregister(pointer(address));
  munmap(pointer(address), bytes);
}

}  // namespace fargpu::server
