#include "tests/hunt/buffers.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/hunt/call.h"
#include "tests/hunt/order.h"

namespace fargpu::hunt {

void Buffers::make() {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (!is_mine(i)) {
      addresses_.push_back(0);
      continue;
    }
    const size_t bytes = buffer.segments * buffer.words * 4;
    CUdeviceptr device = 0;
    void* host = nullptr;
    switch (buffer.memory) {
      case Memory::kDevice:
        CU(cuMemAlloc(&device, bytes));
        CU(cuMemsetD8(device, 0, bytes));
        break;
      case Memory::kManaged:
        CU(cuMemAllocManaged(&device, bytes, CU_MEM_ATTACH_GLOBAL));
        break;
      case Memory::kPageable:
        host = std::calloc(1, bytes);
        break;
      case Memory::kRegistered:
        host = make_registered(bytes, i % 2 != 0);
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
    if (!is_mine(i)) continue;
    void* const host = reinterpret_cast<void*>(addresses_[i]);
    switch (program_.buffers[i].memory) {
      case Memory::kDevice:
      case Memory::kManaged:
        CU(cuMemFree(addresses_[i]));
        break;
      case Memory::kPageable:
        std::free(host);
        break;
      case Memory::kRegistered:
        CU(cuMemHostUnregister(registered_.at(host).begin));
        break;
      default:
        CU(cuMemFreeHost(host));
    }
  }
  for (const auto& [host, memory] : registered_) {
    if (memory.mapped != 0)
      ::munmap(memory.all, memory.mapped);
    else
      std::free(memory.all);
  }
}

// Not at the beginning of a page: neither is most memory that programs register. `is_large`: in the
// middle of a large mapping, of which pages are fetched when they are touched.
void* Buffers::make_registered(size_t bytes, bool is_large) {
  constexpr size_t kSkip = 64, kAround = 256 << 10;
  const size_t whole = bytes + (is_large ? 2 * kAround : 2 * kSkip);
  void* const all =
      is_large ? ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
               : std::calloc(1, whole);
  char* const begin = static_cast<char*>(all) + kSkip;
  char* const host = is_large ? static_cast<char*>(all) + kAround + kSkip : begin;
  CU(cuMemHostRegister(begin, whole - 2 * kSkip, CU_MEMHOSTREGISTER_PORTABLE));
  registered_[host] = {all, begin, is_large ? whole : 0};
  return host;
}

void Buffers::share(SharedPage& page) const {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    if (is_mine(i) && program_.buffers[i].shared)
      CU(cuIpcGetMemHandle(&page.memory[i], addresses_[i]));
  }
}

void Buffers::open_shared(const SharedPage& page) {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    if (is_opened(i))
      CU(cuIpcOpenMemHandle(&addresses_[i], page.memory[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
}

void Buffers::close_shared() {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    if (is_opened(i)) CU(cuIpcCloseMemHandle(addresses_[i]));
  }
}

void Buffers::use_again() const {
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (!is_mine(i) || !buffer.shared) continue;
    std::vector<uint32_t> words(buffer.segments * buffer.words);
    CU(cuMemsetD32(addresses_[i], 0xabcd, words.size()));
    CU(cuMemcpyDtoH(words.data(), addresses_[i], words.size() * 4));
    for (const uint32_t word : words) {
      if (word != 0xabcd)
        throw Failure("memory that the other process had opened keeps no value any more");
    }
  }
}

void Buffers::write(const Place& place, uint32_t value) const {
  if (mistake_ == Mistake::kManaged && of(place).memory == Memory::kManaged) return;
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
      if (may_be(allowed[k], seen)) continue;
      std::string text = "word ";  // g++ 12 warns of what it takes for too long in one sum
      text += std::to_string(w) + " of segment ";
      text += std::to_string(place.segment + k * place.stride) + " is ";
      text += std::to_string(seen) + ", not one of";
      for (const uint32_t value : allowed[k]) text += " " + std::to_string(value);
      return text;
    }
  }
  return {};
}

}  // namespace fargpu::hunt
