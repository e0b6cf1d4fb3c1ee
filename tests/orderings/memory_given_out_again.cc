// run: --memory 2G
// Freed memory is free and allocated memory is not, whichever threads allocate and free at once:
// the driver may give an address out again before the thread that freed it hears of it.
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr long kMiB = 1 << 20;
constexpr size_t kBlock = 32 * kMiB;
constexpr int kThreads = 8;

size_t free_bytes() {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  return free;
}

void expect_used(size_t free_before, long mib, const char* when) {
  const long used = (static_cast<long>(free_before) - static_cast<long>(free_bytes())) / kMiB;
  // A driver rounds, and has its own.
  if (used < mib - 64 || used > mib + 64)
    wrong("%s: %ld MiB in use, %ld MiB allocated", when, used, mib);
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  CU(cuMemFree(device_memory(kBlock)));  // whatever comes with the first allocation
  const size_t free_before = free_bytes();
  for (int round = 0; round < 8; ++round) {
    step("threads that allocate and free");
    CUdeviceptr kept[kThreads] = {};
    std::vector<std::thread> threads;
    for (CUdeviceptr& mine : kept) {
      threads.emplace_back([&mine, context] {
        CU(cuCtxSetCurrent(context));
        for (int i = 0; i < 300; ++i) CU(cuMemFree(device_memory(kBlock)));
        mine = device_memory(kBlock);
      });
    }
    for (std::thread& thread : threads) thread.join();
    expect_used(free_before, kThreads * static_cast<long>(kBlock) / kMiB, "with blocks kept");
    for (const CUdeviceptr memory : kept) CU(cuMemFree(memory));
    expect_used(free_before, 0, "with nothing kept");
  }
  right();
}
