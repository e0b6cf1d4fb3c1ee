// sim: FARGPU_SIM_STREAM_WAITS=1
// sim: FARGPU_SIM_JITTER=501
// again: FARGPU_LINK=jitter=501us
// Threads copy in the legacy stream while another puts functions and copies into a blocking stream,
// many behind each other. Every function takes memory of the driver's while work of the legacy
// stream has not ended, and nobody may take for ended what another thread is only about to send.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 20, kFunctions = 120, kCopiers = 4;
constexpr size_t kBytes = 64;

std::atomic<int> ran{0};

void CUDA_CB count(void*) {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  ++ran;
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  CUstream blocking;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  void* pinned = nullptr;
  CU(cuMemAllocHost(&pinned, kBytes));
  const CUdeviceptr at = device_memory(kBytes);
  std::atomic<int> begun{0};
  std::vector<std::thread> copiers;
  for (int i = 0; i < kCopiers; ++i) {
    copiers.emplace_back([&, i] {
      CU(cuCtxSetCurrent(context));
      const CUdeviceptr own = device_memory(2 * kBytes);
      char bytes[kBytes] = {};
      for (int round = 1; round <= kRounds; ++round) {
        for (int seen = begun; seen < round; seen = begun) begun.wait(seen);
        std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 7) * i));
        CU(cuMemcpyDtoD(own, own + kBytes, kBytes));
        CU(cuMemcpyDtoH(bytes, own, kBytes));
      }
    });
  }
  for (int round = 1; round <= kRounds; ++round) {
    step("functions and copies");
    ran = 0;
    begun = round;
    begun.notify_all();
    for (int i = 0; i < kFunctions; ++i) {
      CU(cuLaunchHostFunc(blocking, count, nullptr));
      CU(cuMemcpyHtoDAsync(at, pinned, kBytes, blocking));
    }
    CU(cuStreamSynchronize(blocking));
    if (ran != kFunctions) wrong("round %d: %d of %d functions", round, ran.load(), kFunctions);
  }
  for (std::thread& copier : copiers) copier.join();
  right();
}
