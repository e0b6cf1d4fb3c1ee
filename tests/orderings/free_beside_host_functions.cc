// sim: FARGPU_SIM_LOCKED_WAITS=1
// A driver that loads, frees or resizes something waits for what runs, and lets nobody in
// meanwhile. Functions of the application that are in streams then still return, and such calls end
// although another thread always has functions in a stream.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 64 << 10;

// Memory of the device that is mapped.
struct Mapping {
  CUdeviceptr at = 0;
  size_t bytes = 0;

  Mapping() {
    CUmemAllocationProp device{};
    device.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    device.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CU(cuMemGetAllocationGranularity(&bytes, &device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle memory;
    CU(cuMemCreate(&memory, bytes, &device, 0));
    CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CU(cuMemMap(at, bytes, 0, memory, 0));
    CU(cuMemRelease(memory));
  }
  ~Mapping() { CU(cuMemAddressFree(at, bytes)); }
};

void CUDA_CB pause_1_ms(void*) { usleep(1000); }
void CUDA_CB pause_100_us(void*) { usleep(100); }

double longest = 0;

void timed(const char* name, CUresult (*call)(void*), void* argument) {
  step(name);
  const double before = now_seconds();
  const CUresult result = call(argument);
  longest = std::max(longest, now_seconds() - before);
  if (result != CUDA_SUCCESS) wrong("%s gave %s", name, name_of(result));
}

// Another thread has always one or two functions in a stream.
void one_after_the_other(CUcontext context) {
  std::atomic<bool> stop{false};
  std::atomic<int> queued{0};
  std::thread feeder([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream stream = make_stream();
    const CUevent done[2] = {make_event(), make_event()};
    for (int i = 0; !stop; ++i) {
      if (i >= 2) CU(cuEventSynchronize(done[i % 2]));
      CU(cuLaunchHostFunc(stream, pause_1_ms, nullptr));
      CU(cuEventRecord(done[i % 2], stream));
      queued = i + 1;
    }
    CU(cuStreamSynchronize(stream));
  });
  while (queued < 10) usleep(1000);
  std::vector<char> own(2 * kBytes);
  for (int round = 0; round < 5; ++round) {
    CUdeviceptr device = device_memory(kBytes);
    void* host;
    CU(cuMemAllocHost(&host, kBytes));
    CU(cuMemHostRegister(own.data(), own.size(), 0));
    CUmodule module = nullptr;
    timed(
        "cuModuleLoadData",
        [](void* loaded) { return cuModuleLoadData(static_cast<CUmodule*>(loaded), kernels_ptx); },
        &module);
    timed(
        "cuCtxSetLimit", [](void*) { return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); }, nullptr);
    timed(
        "cuMemFree", [](void* memory) { return cuMemFree(*static_cast<CUdeviceptr*>(memory)); },
        &device);
    Mapping mapping;
    timed(
        "cuMemUnmap",
        [](void* mapped) {
          const Mapping& unmapped = *static_cast<Mapping*>(mapped);
          return cuMemUnmap(unmapped.at, unmapped.bytes);
        },
        &mapping);
    timed(
        "cuMemFreeHost", [](void* memory) { return cuMemFreeHost(memory); }, host);
    timed(
        "cuMemHostUnregister", [](void* memory) { return cuMemHostUnregister(memory); },
        own.data());
    timed(
        "cuModuleUnload", [](void* image) { return cuModuleUnload(static_cast<CUmodule>(image)); },
        module);
  }
  const int during = queued;
  usleep(100'000);
  HOLDS(queued > during);  // nor are they held for ever
  stop = true;
  feeder.join();
  if (longest > 2) wrong("a call that waits for streams took %.1f s", longest);
}

// Threads that free, in other contexts, too, beside threads that have functions in streams.
void all_at_once(CUcontext context) {
  step("freeing in threads while others keep host functions in streams");
  const double end = now_seconds() + 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([=] {
      CU(cuCtxSetCurrent(context));
      const CUstream stream = make_stream();
      while (now_seconds() < end) {
        const CUdeviceptr device = device_memory(kBytes);
        void* host;
        CU(cuMemAllocHost(&host, kBytes));
        std::memset(host, 1, kBytes);
        CU(cuMemcpyHtoDAsync(device, host, kBytes, stream));
        CU(cuMemFree(device));
        CU(cuMemFreeHost(host));
      }
    });
    threads.emplace_back([=] {
      CU(cuCtxSetCurrent(context));
      const CUstream stream = make_stream();
      const CUdeviceptr device = device_memory(kBytes);
      while (now_seconds() < end) {
        for (int j = 0; j < 4; ++j) {
          CU(cuMemsetD8Async(device, 1, kBytes, stream));
          CU(cuLaunchHostFunc(stream, pause_100_us, nullptr));
        }
        CU(cuStreamSynchronize(stream));
      }
    });
  }
  threads.emplace_back([=] {
    std::vector<char> back(kBytes);
    while (now_seconds() < end) {
      const CUcontext other = new_context();
      const CUmodule module = load_kernels();
      const CUdeviceptr device = device_memory(kBytes);
      CU(cuMemcpyDtoH(back.data(), device, kBytes));
      CU(cuMemFree(device));
      CU(cuModuleUnload(module));
      CU(cuCtxDestroy(other));
    }
  });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  one_after_the_other(context);
  all_at_once(context);
  right();
}
