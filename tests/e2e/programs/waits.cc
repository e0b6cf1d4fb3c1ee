// waits COUNT COPIES THREADS MICROSECONDS: in each of THREADS threads COUNT times a fill, a pause
// of the host of MICROSECONDS, and a copy of 4 bytes to the host, which waits; then COPIES times 1
// MiB to the device and back. How long it takes over a link is known but for its own pauses.
#include <cuda.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "driver_check.h"

namespace {

constexpr size_t kLarge = 1 << 20;

// A sleep would take longer than it was told.
void pause(int microseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

int work(CUcontext context, int count, int copies, int microseconds) {
  CUdeviceptr memory = 0;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&memory, kLarge));
  std::vector<char> host(kLarge);
  for (int i = 0; i < count; ++i) {
    unsigned word = 0;
    CHECK(cuMemsetD32Async(memory, static_cast<unsigned>(i), 16, nullptr));
    pause(microseconds);
    CHECK(cuMemcpyDtoH(&word, memory, sizeof word));
    if (word != static_cast<unsigned>(i)) return 1;
  }
  for (int i = 0; i < copies; ++i) {
    host[0] = static_cast<char>(i);
    CHECK(cuMemcpyHtoD(memory, host.data(), kLarge));
    host[0] = -1;
    CHECK(cuMemcpyDtoH(host.data(), memory, kLarge));
    if (host[0] != static_cast<char>(i)) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** values) {
  if (argc != 5) return 2;
  const int count = std::atoi(values[1]), copies = std::atoi(values[2]),
            threads = std::atoi(values[3]), microseconds = std::atoi(values[4]);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  std::vector<int> failed(static_cast<size_t>(threads));
  std::vector<std::thread> all;
  for (int& one : failed)
    all.emplace_back([&] { one = work(context, count, copies, microseconds); });
  for (std::thread& one : all) one.join();
  for (const int one : failed)
    if (one != 0) return 1;
  return 0;
}
