// Host memory that kernels reach by pointers in other memory, made and filled right before the
// launch: a pointer in managed memory to new pinned or registered memory, and in registered memory
// to other registered memory, by several threads at a time. The kernel reads what was stored before
// its launch.
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 4096;
constexpr int kRounds = 20;

struct World {
  CUcontext context = nullptr;
  CUfunction load_through = nullptr, load_both = nullptr;
};

int* registered() {
  void* const made =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) wrong("no memory");
  CU(cuMemHostRegister(made, kBytes, 0));
  return static_cast<int*>(made);
}

int* pinned() {
  void* made = nullptr;
  CU(cuMemHostAlloc(&made, kBytes, 0));
  return static_cast<int*>(made);
}

int load_through(const World& world, CUstream stream, CUdeviceptr result, CUdeviceptr pointer) {
  CU(launch(world.load_through, stream, result, pointer));
  int got = -1;
  CU(cuMemcpyDtoHAsync(&got, result, sizeof got, stream));
  CU(cuStreamSynchronize(stream));
  return got;
}

// What is wrong may come late (the next kernel reads the value), or never; and it may be the
// pointer or the value.
void expect_value(const World& world, CUstream stream, CUdeviceptr result, CUdeviceptr pointer,
                  const int* value) {
  const int expected = *value, got = load_through(world, stream, result, pointer);
  if (got == expected) return;
  const void* seen = nullptr;
  CU(launch(world.load_both, stream, result, pointer, pointer + sizeof(unsigned)));
  CU(cuMemcpyDtoHAsync(&seen, result, sizeof seen, stream));
  CU(cuStreamSynchronize(stream));
  const int again = load_through(world, stream, result, pointer);
  wrong("%s: the kernel read %d instead of %d; then another saw the pointer %p (it is %p), and %d",
        current_step, got, expected, seen, static_cast<const void*>(value), again);
}

void by_managed_memory(const World& world, CUstream stream, int* (*make)()) {
  const CUdeviceptr result = device_memory(sizeof(void*));
  CUdeviceptr managed = 0;
  CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  for (int round = 1; round <= kRounds; ++round) {
    int* const value = make();
    *value = round;
    *reinterpret_cast<int**>(managed) = value;
    expect_value(world, stream, result, managed, value);
  }
}

void by_registered_memory(const World& world, int first) {
  CU(cuCtxSetCurrent(world.context));
  const CUstream stream = make_stream();
  const CUdeviceptr result = device_memory(sizeof(void*));
  for (int round = 1; round <= kRounds; ++round) {
    int* const value = registered();
    *value = first + round;
    auto** const head = reinterpret_cast<int**>(registered());
    *head = value;
    expect_value(world, stream, result, reinterpret_cast<CUdeviceptr>(head), value);
  }
}

}  // namespace

int main() {
  begin();
  World world{.context = use_primary()};
  const CUmodule module = load_kernels();
  world.load_through = kernel_of(module, "load_through");
  world.load_both = kernel_of(module, "load_both");
  const CUstream stream = make_stream();
  step("a pointer in managed memory to registered memory");
  by_managed_memory(world, stream, registered);
  step("a pointer in managed memory to pinned memory");
  by_managed_memory(world, stream, pinned);
  step("pointers in registered memory, three threads");
  std::vector<std::thread> threads;
  for (int first : {1000, 2000, 3000})
    threads.emplace_back([&world, first] { by_registered_memory(world, first); });
  for (std::thread& thread : threads) thread.join();
  right();
}
