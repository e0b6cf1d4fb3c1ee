#include "server/shared_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/base/fd.h"
#include "common/transport/descriptor_passing.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAddressEnd = uint64_t{1} << 47;  // user addresses on x86-64

// Only memory files know about seals, so this tells their kind as well.
bool is_sealed_memory(int descriptor, uint64_t bytes) {
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && status.st_size >= 0 && static_cast<uint64_t>(status.st_size) >= bytes;
}

}  // namespace

SharedHost::Mapping::~Mapping() { ::munmap(base_, bytes_); }

uint64_t SharedHost::usual_limit() {
  constexpr uint64_t kAtLeast = uint64_t{16} << 30;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  return std::max(kAtLeast, pages > 0 ? static_cast<uint64_t>(pages) * kPage / 2 : 0);
}

SharedHost::~SharedHost() {
  for (auto mapping = mappings_.begin(); mapping != mappings_.end();) mapping = drop(mapping);
}

CUresult SharedHost::share(transport::DescriptorPassing* passing, uint64_t number, uint64_t address, size_t bytes, uint16_t context,
                           CUdeviceptr* device_pointer) {
  if (passing == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const Result<Fd> descriptor = passing->take(number);
  if (!descriptor.ok()) return CUDA_ERROR_INVALID_HANDLE;
  if (driver_.cuMemHostRegister_v2 == nullptr || driver_.cuMemHostGetDevicePointer_v2 == nullptr ||
      driver_.cuMemHostUnregister == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (address == 0 || address % kPage != 0 || bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kAddressEnd || address > kAddressEnd - bytes) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > max_bytes_ || total_bytes_ > max_bytes_ - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!is_sealed_memory(descriptor->get(), bytes)) return CUDA_ERROR_INVALID_VALUE;
  void* const wanted = reinterpret_cast<void*>(address);
  void* const memory =
      ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor->get(), 0);
  if (memory == MAP_FAILED) {
    if (errno == EEXIST) return CUDA_ERROR_ALREADY_MAPPED;
    return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  }
  auto mapping = std::make_shared<const Mapping>(static_cast<std::byte*>(memory), bytes, context);
  if (memory != wanted) return CUDA_ERROR_ALREADY_MAPPED;  // a kernel that takes the address for a hint
  CUresult result = driver_.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuMemHostGetDevicePointer_v2(device_pointer, memory, 0);
  if (result != CUDA_SUCCESS) {
    driver_.cuMemHostUnregister(memory);
    return result;
  }
  mappings_.emplace(address, std::move(mapping));
  total_bytes_ += bytes;
  return CUDA_SUCCESS;
}

CUresult SharedHost::unshare(uint64_t address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end()) return CUDA_ERROR_NOT_MAPPED;
  drop(found);
  return CUDA_SUCCESS;
}

void SharedHost::forget_context(uint16_t context) {
  for (auto mapping = mappings_.begin(); mapping != mappings_.end();) {
    mapping = mapping->second->context() == context ? drop(mapping) : std::next(mapping);
  }
}

std::shared_ptr<const SharedHost::Mapping> SharedHost::find(uint64_t address, uint64_t bytes) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  const auto& [base, mapping] = *std::prev(after);
  const uint64_t offset = address - base;
  if (offset >= mapping->bytes() || bytes > mapping->bytes() - offset) return nullptr;
  return mapping;
}

std::shared_ptr<const SharedHost::Mapping> SharedHost::at(uint64_t address) const {
  const auto found = mappings_.find(address);
  return found == mappings_.end() ? nullptr : found->second;
}

SharedHost::Map::iterator SharedHost::drop(Map::iterator mapping) {
  driver_.cuMemHostUnregister(mapping->second->base());
  total_bytes_ -= mapping->second->bytes();
  return mappings_.erase(mapping);
}

}  // namespace fargpu::server
