#include "tests/hunt/buffers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/hunt/call.h"

namespace fargpu::hunt {

void Buffers::make() {
  for (const Buffer& buffer : program_.buffers) {
    const size_t bytes = buffer.segments * buffer.words * 4;
    CUdeviceptr device = 0;
    void* host = nullptr;
    switch (buffer.memory) {
      case Memory::kDevice:
        CU(cuMemAlloc(&device, bytes));
        CU(cuMemsetD8(device, 0, bytes));
        break;
      case Memory::kPageable:
        host = std::calloc(1, bytes);
        break;
      case Memory::kRegistered:
        // Not at the beginning of a page: neither is most memory that programs register.
        registered_.push_back(std::calloc(1, bytes + 64));
        host = static_cast<char*>(registered_.back()) + 64;
        CU(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE));
        break;
      case Memory::kPinned:
      case Memory::kMapped:
        CU(cuMemHostAlloc(&host, bytes,
                          CU_MEMHOSTALLOC_PORTABLE |
                              (buffer.memory == Memory::kMapped ? CU_MEMHOSTALLOC_DEVICEMAP : 0)));
        std::memset(host, 0, bytes);
        break;
    }
    addresses_.push_back(device != 0 ? device : reinterpret_cast<CUdeviceptr>(host));
  }
}

void Buffers::unmake() {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    void* const host = reinterpret_cast<void*>(addresses_[i]);
    switch (program_.buffers[i].memory) {
      case Memory::kDevice:
        CU(cuMemFree(addresses_[i]));
        break;
      case Memory::kPageable:
        std::free(host);
        break;
      case Memory::kRegistered:
        CU(cuMemHostUnregister(host));
        break;
      default:
        CU(cuMemFreeHost(host));
    }
  }
  for (void* memory : registered_) std::free(memory);
}

void Buffers::write(const Place& place, uint32_t value) const {
  for (size_t k = 0; k < place.count; ++k) {
    auto* const words = reinterpret_cast<volatile uint32_t*>(address(place, k));
    for (size_t w = 0; w < of(place).words; ++w) words[w] = value;
  }
}

std::string Buffers::check(const Place& place,
                           const std::vector<std::vector<uint32_t>>& allowed) const {
  for (size_t k = 0; k < place.count; ++k) {
    const auto* const words = reinterpret_cast<const volatile uint32_t*>(address(place, k));
    for (size_t w = 0; w < of(place).words; ++w) {
      const uint32_t seen = words[w];
      if (std::binary_search(allowed[k].begin(), allowed[k].end(), seen)) continue;
      std::string text = "word " + std::to_string(w) + " of segment " +
                         std::to_string(place.segment + k * place.stride) + " is " +
                         std::to_string(seen) + ", not one of";
      for (const uint32_t value : allowed[k]) text += " " + std::to_string(value);
      return text;
    }
  }
  return {};
}

}  // namespace fargpu::hunt
