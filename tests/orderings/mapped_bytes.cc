// Host and device share mapped memory: each sees what the other one wrote, whatever else either of
// them writes to the same page, once a launch or a wait has put the two in order.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

CUfunction spin, store, load, increment, store_bytes, add_bytes, keep_storing;

template <typename T>
T* mapped(size_t bytes, CUdeviceptr* device) {
  void* host = nullptr;
  CU(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(host, 0, bytes);
  CU(cuMemHostGetDevicePointer(device, host, 0));
  return static_cast<T*>(host);
}

// The kernel has ended, but nobody has waited for it when the host writes another word.
void words_of_one_page() {
  CUdeviceptr device, seen = device_memory(sizeof(int));
  int* host = mapped<int>(4096, &device);
  const CUstream writer = make_stream(), reader = make_stream();
  for (int round = 1; round <= 20; ++round) {
    CU(launch(store, writer, device, round));
    usleep(20'000);
    host[512] = round + 1000;
    CU(launch(load, reader, seen, device + 512 * sizeof(int)));
    CU(cuCtxSynchronize());
    int value = 0;
    CU(cuMemcpyDtoH(&value, seen, sizeof value));
    if (value != round + 1000) wrong("round %d: the kernel read %d", round, value);
    if (host[0] != round) wrong("round %d: the kernel's word is %d", round, host[0]);
    HOLDS(host[512] == round + 1000);
  }
  CU(cuMemFreeHost(host));
}

// The host has the even bytes, the device the odd ones; the host writes while the kernel runs.
void alternate_bytes() {
  constexpr int kPairs = 6000;
  CUdeviceptr device;
  auto* host = mapped<unsigned char>(2 * kPairs + 3, &device);
  const CUstream stream = make_stream();
  for (int round = 0; round < 40; ++round) {
    void* bytes = reinterpret_cast<void*>(device + 3);  // no word begins there
    int count = kPairs, first = 1, step = 2, value = round;
    void* parameters[] = {&bytes, &count, &first, &step, &value};
    CU(cuLaunchKernel(store_bytes, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
    for (int i = 0; i < kPairs; ++i) host[3 + 2 * i] = static_cast<unsigned char>(round * 3 + i);
    if (round % 3 == 0) CU(launch(spin, stream, 1u));
    CU(cuStreamSynchronize(stream));
    for (int i = 0; i < kPairs; ++i) {
      if (host[3 + 2 * i] != static_cast<unsigned char>(round * 3 + i))
        wrong("round %d: the host's byte %d is %d", round, i, host[3 + 2 * i]);
      if (host[3 + 2 * i + 1] != static_cast<unsigned char>(round + i))
        wrong("round %d: the device's byte %d is %d", round, i, host[3 + 2 * i + 1]);
    }
    HOLDS(host[0] == 0 && host[1] == 0 && host[2] == 0);
  }
  CU(cuMemFreeHost(host));
}

// Each thread has a stream and two neighbouring words: the device counts in one, it in the other.
void threads_in_one_page(CUcontext context) {
  constexpr int kThreads = 2, kRounds = 100;
  CUdeviceptr device;
  int* host = mapped<int>(4096, &device);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      CU(cuCtxSetCurrent(context));
      const CUstream stream = make_stream();
      const CUevent event = make_event();
      const CUdeviceptr seen = device_memory(sizeof(int));
      for (int round = 1; round <= kRounds; ++round) {
        host[2 * t] = round;
        CU(launch(load, stream, seen, device + 2 * t * sizeof(int)));
        CU(launch(increment, stream, device + (2 * t + 1) * sizeof(int)));
        CU(cuEventRecord(event, stream));
        CU(cuEventSynchronize(event));
        if (host[2 * t + 1] != round)
          wrong("thread %d: the device counted to %d in round %d", t, host[2 * t + 1], round);
        int value = 0;
        CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, stream));
        CU(cuStreamSynchronize(stream));
        if (value != round) wrong("thread %d: the kernel read %d in round %d", t, value, round);
        HOLDS(host[2 * t] == round);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CU(cuMemFreeHost(host));
}

// Small allocations, of which the driver may put several into one page.
void small_neighbours() {
  constexpr int kRegions = 12;
  CUdeviceptr device[kRegions];
  int* host[kRegions];
  for (int i = 0; i < kRegions; ++i) host[i] = mapped<int>(64, &device[i]);
  for (int round = 1; round <= 10; ++round) {
    for (int i = 0; i < kRegions; i += 2) CU(launch(store, nullptr, device[i], 100 * round + i));
    for (int i = 1; i < kRegions; i += 2) host[i][0] = 200 * round + i;
    CU(launch(spin, nullptr, 1u));
    CU(cuStreamSynchronize(nullptr));
    for (int i = 0; i < kRegions; ++i) HOLDS(host[i][0] == (i % 2 ? 200 : 100) * round + i);
  }
  for (int* one : host) CU(cuMemFreeHost(one));
}

// Nothing of what was there before is seen in memory that was allocated again.
void freed_and_allocated_again() {
  const CUdeviceptr sum = device_memory(sizeof(int));
  for (int round = 1; round <= 30; ++round) {
    CUdeviceptr device;
    const int bytes = 1000 + 700 * (round % 7);
    auto* host = mapped<unsigned char>(static_cast<size_t>(bytes), &device);
    std::memset(host, round, static_cast<size_t>(bytes));
    CU(launch(add_bytes, nullptr, sum, device, bytes));
    CU(launch(store_bytes, nullptr, device, 4, 0, 1, 99));
    CU(cuCtxSynchronize());
    int total = 0;
    CU(cuMemcpyDtoH(&total, sum, sizeof total));
    if (total != round * bytes) wrong("round %d: %d in all, not %d", round, total, round * bytes);
    HOLDS(host[0] == 99 && host[3] == 102 && host[4] == round);
    CU(cuMemFreeHost(host));
  }
}

// One stream waits for the other one's event; the host waits for an event of the second.
void order_by_events() {
  CUdeviceptr device;
  int* host = mapped<int>(4096, &device);
  const CUstream first = make_stream(), second = make_stream();
  const CUevent between = make_event(), end = make_event();
  for (int round = 1; round <= 20; ++round) {
    host[1] = -round;
    CU(launch(spin, first, 500u));
    CU(launch(store, first, device, round));
    CU(cuEventRecord(between, first));
    CU(cuStreamWaitEvent(second, between, 0));
    CU(launch(load, second, device + 2 * sizeof(int), device));
    CU(cuEventRecord(end, second));
    host[3] = round;
    if (round % 2) {
      CU(cuEventSynchronize(end));
    } else {
      CUresult result;
      while ((result = cuEventQuery(end)) == CUDA_ERROR_NOT_READY) usleep(100);
      CU(result);
    }
    HOLDS(host[0] == round && host[1] == -round && host[2] == round && host[3] == round);
  }
  CU(cuMemFreeHost(host));
}

// A kernel writes one word all the time, while the host writes others of the page and launches.
void device_writes_while_the_host_does() {
  CUdeviceptr device;
  int* host = mapped<int>(4096, &device);
  const CUdeviceptr seen = device_memory(sizeof(int));
  const CUstream writer = make_stream(), reader = make_stream();
  CU(launch(keep_storing, writer, device + sizeof(int), 123'456'789, 300'000u));
  for (int round = 1; round <= 200; ++round) {
    host[0] = round;
    host[2] = -round;
    CU(launch(load, reader, seen, device + (round % 2 ? 0 : 2) * sizeof(int)));
    int value = 0;
    CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, reader));
    CU(cuStreamSynchronize(reader));
    if (value != (round % 2 ? round : -round)) wrong("round %d: the kernel read %d", round, value);
    HOLDS(host[0] == round && host[2] == -round);
  }
  CU(cuStreamSynchronize(writer));
  if (host[1] != 123'456'789) wrong("the kernel's last word is %d", host[1]);
  CU(cuMemFreeHost(host));
}

// Functions in a stream are ordered with its kernels as well.
struct Between {
  int* host;
  std::atomic<int> seen{0};
};

void host_function_between_kernels() {
  CUdeviceptr device;
  Between between{mapped<int>(4096, &device)};
  const CUstream stream = make_stream();
  for (int round = 1; round <= 20; ++round) {
    CU(launch(store, stream, device, round));
    CU(cuLaunchHostFunc(
        stream,
        [](void* data) {
          auto& here = *static_cast<Between*>(data);
          here.seen = here.host[0];
          here.host[1] = here.host[0] + 1000;
        },
        &between));
    CU(launch(load, stream, device + 2 * sizeof(int), device + sizeof(int)));
    CU(cuStreamSynchronize(stream));
    if (between.seen != round) wrong("round %d: the function read %d", round, between.seen.load());
    if (between.host[2] != round + 1000)
      wrong("round %d: the kernel after it read %d", round, between.host[2]);
  }
  CU(cuMemFreeHost(between.host));
}

// What kernels of a context wrote outlives it.
void context_that_is_destroyed(CUcontext primary) {
  CUdeviceptr device;
  int* host = mapped<int>(4096, &device);
  const CUcontext other = new_context();
  const CUfunction store_there = kernel_of(load_kernels(), "store");
  CU(launch(store_there, nullptr, device + 8, 5));
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(primary));
  HOLDS(host[2] == 5);
  CU(launch(store, nullptr, device + 12, 6));
  CU(cuCtxSynchronize());
  HOLDS(host[2] == 5 && host[3] == 6);
  CU(cuMemFreeHost(host));
}

// Each way to learn that an event is complete shows what came before it.
void complete_by_elapsed_time() {
  CUdeviceptr device = 0;
  int* host = mapped<int>(4096, &device);
  CUevent begin_event, end_event;
  CU(cuEventCreate(&begin_event, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&end_event, CU_EVENT_DEFAULT));
  const CUstream stream = make_stream();
  CU(cuEventRecord(begin_event, stream));
  CU(launch(spin, stream, microseconds(0.02)));
  CU(launch(store, stream, device, 9));
  CU(cuEventRecord(end_event, stream));
  float milliseconds = 0;
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY)
    result = cuEventElapsedTime(&milliseconds, begin_event, end_event);
  CU(result);
  HOLDS(*host == 9);
  CU(cuStreamDestroy(stream));
  CU(cuEventDestroy(begin_event));
  CU(cuEventDestroy(end_event));
  CU(cuMemFreeHost(host));
}

}  // namespace

int main() {
  begin(120);
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  increment = kernel_of(module, "increment");
  store_bytes = kernel_of(module, "store_bytes");
  add_bytes = kernel_of(module, "add_bytes");
  keep_storing = kernel_of(module, "keep_storing");
  step("words of one page");
  words_of_one_page();
  step("alternate bytes");
  alternate_bytes();
  step("two threads in one page");
  threads_in_one_page(context);
  step("small neighbours");
  small_neighbours();
  step("memory that is freed and allocated again");
  freed_and_allocated_again();
  step("order by events");
  order_by_events();
  step("an event that is complete by its time");
  complete_by_elapsed_time();
  step("a kernel that writes all the time");
  device_writes_while_the_host_does();
  step("a host function between kernels");
  host_function_between_kernels();
  step("a context that is destroyed");
  context_that_is_destroyed(context);
  right();
}
