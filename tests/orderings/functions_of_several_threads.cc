// sim: FARGPU_SIM_STREAM_WAITS=1
// Several threads put host functions into one stream, and device work into the same one or into the
// legacy stream. What a driver sets aside for a function depends on what comes behind it or beside
// it, so work that another thread is sending must be counted, and no more than that: a call that a
// driver refuses is no work, nor is one of which it makes nothing.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 64;

std::atomic<unsigned> ran{0};
std::atomic<bool> is_open{false};

void CUDA_CB take_long(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ++ran;
}
void CUDA_CB count(void*) { ++ran; }
void CUDA_CB await_opening(void*) {
  while (!is_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ++ran;
}

struct World {
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  CUdeviceptr at = 0;
};

void in_threads(const World& world, unsigned threads, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> started;
  for (unsigned i = 0; i < threads; ++i)
    started.emplace_back([&, i] {
      CU(cuCtxSetCurrent(world.context));
      body(i);
    });
  for (std::thread& thread : started) thread.join();
}

void await_functions(CUstream stream, unsigned expected) {
  CU(cuStreamSynchronize(stream));
  CU(cuCtxSynchronize());
  if (ran.exchange(0) != expected) wrong("not all of %u functions have run", expected);
}

void functions_and_fills(const World& world, unsigned threads, CUstream stream) {
  constexpr unsigned kEach = 200;
  CU(cuLaunchHostFunc(stream, take_long, nullptr));
  in_threads(world, threads, [&](unsigned i) {
    for (unsigned k = 0; k < kEach; ++k) {
      CU(cuLaunchHostFunc(stream, count, nullptr));
      CU(cuMemsetD8Async(world.at + kBytes * i, 1, kBytes, stream));
    }
  });
  await_functions(stream, 1 + threads * kEach);
}

void functions_beside_the_legacy_stream(const World& world, unsigned threads, CUstream blocking,
                                        unsigned microseconds) {
  constexpr unsigned kEach = 10;
  in_threads(world, threads + 1, [&](unsigned i) {
    if (i == threads) {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      CU(launch(world.spin, nullptr, 60'000u));
      CU(cuMemsetD8Async(world.at, 1, kBytes, nullptr));
      return;
    }
    CU(cuLaunchHostFunc(blocking, i == 0 ? take_long : count, nullptr));
    for (unsigned k = 1; k < kEach; ++k) CU(cuLaunchHostFunc(blocking, count, nullptr));
  });
  await_functions(blocking, threads * kEach);
}

// `call` makes no work for the legacy stream.
void functions_beside(CUstream blocking, const std::function<CUresult()>& call,
                      CUresult expected = CUDA_SUCCESS) {
  constexpr unsigned kFunctions = 300;
  is_open = false;
  CU(cuLaunchHostFunc(blocking, await_opening, nullptr));
  if (const CUresult result = call(); result != expected) wrong("the call returned %d", result);
  for (unsigned i = 0; i < kFunctions; ++i) CU(cuLaunchHostFunc(blocking, count, nullptr));
  is_open = true;
  await_functions(blocking, 1 + kFunctions);
}

}  // namespace

int main() {
  begin();
  World world{.context = use_primary()};
  world.spin = kernel_of(load_kernels(), "spin");
  world.at = device_memory(kBytes * 16);
  CUstream blocking = nullptr;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  const CUstream apart = make_stream();
  const CUevent happened = make_event(), recorded = make_event();
  CU(cuEventRecord(happened, blocking));
  CUgraph nothing = nullptr;
  CU(cuGraphCreate(&nothing, 0));
  const CUgraphExec empty = instantiate(nothing);
  CU(cuCtxSynchronize());
  for (unsigned round = 0; round < 5; ++round) {
    step(0, "two threads and a stream that is apart", round);
    functions_and_fills(world, 2, apart);
    step(0, "four threads and a blocking stream", round);
    functions_and_fills(world, 4, blocking);
  }
  for (unsigned round = 0; round < 15; ++round) {
    step(0, "functions of 16 threads beside the legacy stream", round);
    functions_beside_the_legacy_stream(world, 16, blocking, 100 * (round % 8));
  }
  step("functions beside a refused copy in the device");
  functions_beside(
      blocking, [&] { return cuMemcpyDtoDAsync(world.at, 0xdead0000, kBytes, nullptr); },
      CUDA_ERROR_INVALID_VALUE);
  step("functions beside a refused fill");
  functions_beside(
      blocking, [] { return cuMemsetD8Async(0xdead0000, 1, kBytes, nullptr); },
      CUDA_ERROR_INVALID_VALUE);
  step("functions beside a refused copy to the device");
  functions_beside(
      blocking,
      [] {
        char bytes[kBytes] = {};
        return cuMemcpyHtoD(0xdead0000, bytes, kBytes);
      },
      CUDA_ERROR_INVALID_VALUE);
  step("functions beside an event record");
  functions_beside(blocking, [&] { return cuEventRecord(recorded, nullptr); });
  step("functions beside a wait for an event that has happened");
  functions_beside(blocking, [&] { return cuStreamWaitEvent(nullptr, happened, 0); });
  step("functions beside an upload of a graph without nodes");
  functions_beside(blocking, [&] { return cuGraphUpload(empty, nullptr); });
  step("functions beside a launch of a graph without nodes");
  functions_beside(blocking, [&] { return cuGraphLaunch(empty, nullptr); });
  right();
}
