#include "server/memory/shared_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "common/base/fd.h"
#include "common/host/map_exactly.h"
#include "common/host/memory_page.h"
#include "common/transport/descriptor_passing.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kAddressEnd = uint64_t{1} << 47;  // user addresses on x86-64

// Only memory files have seals, so this also checks the kind of file.
bool is_sealed_memory(int descriptor, uint64_t bytes) {
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_size >= 0 &&
         static_cast<uint64_t>(status.st_size) >= bytes;
}

}  // namespace

SharedHost::Mapping::Mapping(std::byte* base, size_t bytes, uint16_t context,
                             HostBudgetPointer budget)
    : base_(base), bytes_(bytes), context_(context), budget_(std::move(budget)) {}

SharedHost::Mapping::~Mapping() {
  ::munmap(base_, bytes_);
  budget_->give_back(bytes_);
}

SharedHost::~SharedHost() {
  for (const auto& [address, mapping] : mappings_) withdraw(*mapping);
}

CUresult SharedHost::map(transport::DescriptorPassing* passing, uint64_t number, uint64_t address,
                         size_t bytes, uint16_t context, MappingPointer* mapping) {
  if (passing == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const Result<Fd> descriptor = passing->take(number);
  if (!descriptor.ok()) return CUDA_ERROR_INVALID_HANDLE;
  if (address == 0 || address % kPageBytes != 0 || bytes == 0 || bytes % kPageBytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kAddressEnd || address > kAddressEnd - bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!is_sealed_memory(descriptor->get(), bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!budget_->take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* const memory = reinterpret_cast<std::byte*>(address);
  if (!map_exactly(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor->get())) {
    budget_->give_back(bytes);
    if (errno == EEXIST) return CUDA_ERROR_ALREADY_MAPPED;
    return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  }
  *mapping = std::make_shared<const Mapping>(memory, bytes, context, budget_);
  return CUDA_SUCCESS;
}

CUresult SharedHost::enroll(const Mapping& mapping, CUdeviceptr* device_pointer) const {
  if (driver_.cuMemHostRegister_v2 == nullptr || driver_.cuMemHostGetDevicePointer_v2 == nullptr ||
      driver_.cuMemHostUnregister == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  CUresult result = driver_.cuMemHostRegister_v2(mapping.base(), mapping.bytes(), kFlags);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuMemHostGetDevicePointer_v2(device_pointer, mapping.base(), 0);
  if (result != CUDA_SUCCESS) driver_.cuMemHostUnregister(mapping.base());
  return result;
}

void SharedHost::add(MappingPointer mapping) {
  const uint64_t address = mapping->address();
  mappings_.insert_or_assign(address, std::move(mapping));
}

SharedHost::MappingPointer SharedHost::remove(uint64_t address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end()) return nullptr;
  MappingPointer mapping = std::move(found->second);
  mappings_.erase(found);
  return mapping;
}

CUresult SharedHost::withdraw(const Mapping& mapping) const {
  return driver_.cuMemHostUnregister(mapping.base());
}

std::vector<SharedHost::MappingPointer> SharedHost::take_context(uint16_t context) {
  std::vector<MappingPointer> taken;
  for (auto entry = mappings_.begin(); entry != mappings_.end();) {
    if (entry->second->context() != context) {
      ++entry;
      continue;
    }
    taken.push_back(std::move(entry->second));
    entry = mappings_.erase(entry);
  }
  return taken;
}

void SharedHost::context_ended(ContextEnd& end) {
  for (MappingPointer& mapping : take_context(end.id))
    end.withdrawals.push_back([this, mapping = std::move(mapping)] { (void)withdraw(*mapping); });
}

SharedHost::MappingPointer SharedHost::find(uint64_t address, uint64_t bytes) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  const auto& [base, mapping] = *std::prev(after);
  const uint64_t offset = address - base;
  if (offset >= mapping->bytes() || bytes > mapping->bytes() - offset) return nullptr;
  return mapping;
}

}  // namespace fargpu::server
