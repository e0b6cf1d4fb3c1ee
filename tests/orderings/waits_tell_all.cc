// What a wait for a stream promises, in the first wait and in later ones: when it returns, what was
// in the stream is done and seen, whoever held it up; errors come out; a few bytes that were copied
// to the host are the right ones.
// again: FARGPU_ZERO_COPY=0
// again: FARGPU_SPIN=2ms
#include <atomic>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 200;
constexpr unsigned kThreads = 4;

CUfunction store, spin, increment;
CUcontext context;

struct Counter {
  std::atomic<int> seen{0};
};
void CUDA_CB count_late(void* counter) {
  usleep(2000);
  static_cast<Counter*>(counter)->seen.fetch_add(1);
}

// A kernel that stores late, in memory that the host reads.
void kernels(CUstream stream) {
  step("kernels that store late");
  int* words = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, words, 0));
  for (int round = 1; round <= kRounds; ++round) {
    CU(launch(spin, stream, round % 10 * 100u));
    CU(launch(store, stream, device, round));
    CU(cuStreamSynchronize(stream));
    HOLDS(__atomic_load_n(words, __ATOMIC_RELAXED) == round);
  }
  CU(cuMemFreeHost(words));
}

void host_functions(CUstream stream) {
  step("host functions that take long");
  Counter counter;
  for (int round = 1; round <= 20; ++round) {
    CU(cuLaunchHostFunc(stream, count_late, &counter));
    CU(cuStreamSynchronize(stream));
    HOLDS(counter.seen.load() == round);
  }
}

// Held by the host, which says so before it lets the stream go on.
void held(CUstream stream) {
  step("a stream that is held by a value");
  unsigned* words = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(words, 0, 4096);
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, words, 0));
  for (unsigned round = 1; round <= 20; ++round) {
    CU(cuStreamWaitValue32(stream, device, round, CU_STREAM_WAIT_VALUE_GEQ));
    std::atomic<bool> let_go{false};
    std::thread other([&] {
      usleep(3000);
      let_go = true;
      __atomic_store_n(words, round, __ATOMIC_RELEASE);
    });
    CU(cuStreamSynchronize(stream));
    HOLDS(let_go.load());
    other.join();
  }
  CU(cuMemFreeHost(words));
}

// Into pageable memory, right behind a kernel that changes the source.
void small_copies(CUstream stream) {
  step("small copies to the host");
  constexpr size_t kMost = 160;
  const CUdeviceptr device = device_memory(kMost);
  unsigned char bytes[kMost + 1];
  for (int round = 1; round <= kRounds; ++round) {
    const size_t size = static_cast<size_t>(round) % kMost + 1;
    CU(cuMemsetD8Async(device, static_cast<unsigned char>(round - 1), kMost, stream));
    CU(launch(spin, stream, round % 10 * 50u));
    CU(cuMemsetD8Async(device, static_cast<unsigned char>(round), kMost, stream));
    std::memset(bytes, 0xee, sizeof bytes);
    CU(cuMemcpyDtoHAsync(bytes, device, size, stream));
    for (size_t i = 0; i < size; ++i) HOLDS(bytes[i] == static_cast<unsigned char>(round));
    for (size_t i = size; i < sizeof bytes; ++i) HOLDS(bytes[i] == 0xee);
  }
  CU(cuMemFree(device));
}

// Each with its stream, and all for one.
void threads(CUstream common) {
  step("several threads");
  const CUdeviceptr device = device_memory(64 * kThreads);
  CU(cuMemsetD8(device, 0, 64 * kThreads));
  CU(cuCtxSynchronize());
  std::vector<std::thread> all;
  for (unsigned i = 0; i < kThreads; ++i) {
    all.emplace_back([i, device, common] {
      CU(cuCtxSetCurrent(context));
      const CUstream own = make_stream();
      const CUdeviceptr word = device + 64 * i;
      for (int round = 1; round <= kRounds; ++round) {
        const CUstream used = round % 2 == 0 ? own : common;
        CU(launch(increment, used, word));
        CU(cuStreamSynchronize(used));
        int value = 0;
        CU(cuMemcpyDtoHAsync(&value, word, sizeof value, own));
        if (value != round) wrong("thread %u, round %d: %d", i, round, value);
      }
    });
  }
  for (std::thread& each : all) each.join();
  CU(cuMemFree(device));
}

// The legacy stream's work is that of all blocking streams.
void legacy(CUstream blocking) {
  step("the legacy stream");
  int* words = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, words, 0));
  for (int round = 1; round <= 50; ++round) {
    CU(launch(spin, blocking, 300u));
    CU(launch(store, blocking, device, round));
    CU(cuStreamSynchronize(nullptr));
    HOLDS(__atomic_load_n(words, __ATOMIC_RELAXED) == round);
  }
  CU(cuMemFreeHost(words));
}

// A context that fails while it is waited for.
void fault(CUmodule module, CUstream stream) {
  step("a fault");
  CU(launch(spin, stream, 20000u));
  CU(launch(kernel_of(module, "fault"), stream));
  HOLDS(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  HOLDS(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace

int main() {
  begin();
  context = use_primary();
  const CUmodule module = load_kernels();
  store = kernel_of(module, "store");
  spin = kernel_of(module, "spin");
  increment = kernel_of(module, "increment");
  kernels(nullptr);  // while there is no other stream
  const CUstream stream = make_stream();
  kernels(stream);
  host_functions(stream);
  held(stream);
  small_copies(stream);
  threads(stream);
  CUstream blocking = nullptr;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  legacy(blocking);
  fault(module, stream);
  right();
}
