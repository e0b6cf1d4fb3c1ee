// Memory is registered in a context, and no longer than that lives. What is mapped at the same
// addresses later is ordinary memory: a copy has taken it, or brought it, when the call returns.
#include <sys/mman.h>

#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 4 << 20;

unsigned char* map_at(void* address) {
  void* const memory =
      mmap(address, kBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | (address != nullptr ? MAP_FIXED : 0), -1, 0);
  HOLDS(memory != MAP_FAILED);
  return static_cast<unsigned char*>(memory);
}

size_t others_than(unsigned char value, const unsigned char* bytes) {
  size_t count = 0;
  for (size_t i = 0; i < kBytes; ++i) count += bytes[i] != value;
  return count;
}

// Registered and used in the current context, which end() ends; then mapped anew.
template <typename End>
unsigned char* used_before(End&& end) {
  unsigned char* const memory = map_at(nullptr);
  CU(cuMemHostRegister(memory, kBytes, 0));
  const CUdeviceptr device = device_memory(kBytes);
  std::memset(memory, 1, kBytes);
  CU(cuMemcpyHtoDAsync(device, memory, kBytes, nullptr));
  CU(cuMemcpyDtoHAsync(memory, device, kBytes, nullptr));
  CU(cuCtxSynchronize());
  end();
  HOLDS(munmap(memory, kBytes) == 0);
  return map_at(memory);
}

void copies_of_ordinary_memory(unsigned char* memory) {
  const CUstream stream = make_stream();
  const CUdeviceptr device = device_memory(kBytes);
  std::vector<unsigned char> seen(kBytes);
  for (int round = 0; round < 5; ++round) {
    const auto value = static_cast<unsigned char>(10 + 2 * round);
    std::memset(memory, value, kBytes);
    CU(cuMemcpyHtoDAsync(device, memory, kBytes, stream));
    std::memset(memory, value + 1, kBytes);
    CU(cuStreamSynchronize(stream));
    CU(cuMemcpyDtoH(seen.data(), device, kBytes));
    HOLDS(others_than(value, seen.data()) == 0);
    CU(cuMemcpyDtoHAsync(memory, device, kBytes, stream));
    HOLDS(others_than(value, memory) == 0);
  }
  // Nobody has registered it.
  HOLDS(cuMemHostUnregister(memory) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CU(cuMemHostRegister(memory, kBytes, 0));
  CU(cuMemHostUnregister(memory));
  CU(cuMemFree(device));
  CU(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  begin();
  const CUcontext primary = use_primary();
  step("a context that is destroyed");
  const CUcontext made = new_context();
  unsigned char* const first = used_before([&] {
    CU(cuCtxDestroy(made));
    CU(cuCtxSetCurrent(primary));
  });
  copies_of_ordinary_memory(first);
  step("a primary context that is reset");
  unsigned char* const second = used_before([] {
    CU(cuDevicePrimaryCtxReset(0));
    use_primary();
  });
  copies_of_ordinary_memory(second);
  right();
}
