// Host and device memory have one address space: nothing that the host maps lies where live device
// memory is, also when other device memory of the same page was freed.
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr uintptr_t kPage = 4096;

// The host would like to have the page of `memory`; MAP_FIXED is not given.
bool host_gets_page_of(CUdeviceptr memory) {
  void* const page = reinterpret_cast<void*>(memory / kPage * kPage);
  void* const got = mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) wrong("mmap");
  munmap(got, kPage);
  return got == page;
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  step("small allocations of one page, freed one after the other");
  std::vector<CUdeviceptr> all;
  for (int i = 0; i < 24; ++i) all.push_back(device_memory(512));
  while (!all.empty()) {
    const size_t which =
        all.size() % 3 * (all.size() - 1) / 2;  // the first, a middle one, the last
    CU(cuMemFree(all[which]));
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
    for (const CUdeviceptr memory : all) {
      if (host_gets_page_of(memory)) wrong("mmap gave the page of %#llx, which is live", memory);
    }
  }

  step("threads that allocate and free in the same pages");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([context, i] {
      CU(cuCtxSetCurrent(context));
      for (int round = 0; round < 200; ++round) {
        const CUdeviceptr mine = device_memory(256 + i * 512);
        const CUdeviceptr large = device_memory(9000);
        CU(cuMemFree(large));
        if (host_gets_page_of(mine)) wrong("mmap gave the page of %#llx, which is live", mine);
        CU(cuMemFree(mine));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  right();
}
