// Threads may load the same image at once, however large it is and however they meet; nothing of it
// shows in other calls.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kThreads = 3;

// The kernels and so much text behind them that it travels in pieces. In nobody's cache.
std::string large_image(int round) {
  std::string image = kernels_ptx;
  image += "// " + std::to_string(getpid()) + " " + std::to_string(now_seconds()) + "\n";
  const std::string filler = "// " + std::string(120, static_cast<char>('a' + round)) + "\n";
  while (image.size() < 40u << 20) image += filler;
  return image;
}

void load_in_threads(CUcontext context, const std::string& image, unsigned apart_microseconds) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      CU(cuCtxSetCurrent(context));
      ++ready;
      while (ready < kThreads) usleep(100);
      usleep(static_cast<unsigned>(i) * apart_microseconds);
      CUmodule module;
      CU(cuModuleLoadData(&module, image.c_str()));
      const CUfunction store = kernel_of(module, "store");
      const CUdeviceptr word = device_memory(sizeof(int));
      CU(launch(store, nullptr, word, 7 + i));
      int seen = 0;
      CU(cuMemcpyDtoH(&seen, word, sizeof seen));
      HOLDS(seen == 7 + i);
      CU(cuMemFree(word));
      CU(cuModuleUnload(module));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  begin(120);
  const CUcontext context = use_primary();
  const unsigned apart[] = {4000, 15000};
  for (int round = 0; round < 2; ++round) {
    const std::string image = large_image(round);
    step("threads that load one image");
    load_in_threads(context, image, apart[round]);
    CU(cuCtxSynchronize());
  }
  right();
}
