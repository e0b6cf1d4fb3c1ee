// What single calls cost their caller: median and 90th percentile in microseconds, one line for
// each kind of call. The device is idle before each measured call.
//   calls [TEXT]   only the kinds whose name contains TEXT
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "need.h"

namespace {

constexpr size_t kSmall = 256, kBulk = size_t{64} << 20;

using Clock = std::chrono::steady_clock;

__global__ void nothing() {}

const char* only = "";

// `work` is called `count` times after count / 10 + 1 that do not count; `settle` after each, out
// of the measured time.
template <typename Work, typename Settle>
void measure(const char* name, int count, const Work& work, const Settle& settle) {
  if (std::strstr(name, only) == nullptr) return;
  std::vector<double> us;
  for (int i = -(count / 10 + 1); i < count; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    const Clock::time_point end = Clock::now();
    settle();
    if (i >= 0) us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%s: median %.2f us, p90 %.2f us\n", name, us[us.size() / 2], us[us.size() * 9 / 10]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) only = argv[1];
  cudaStream_t stream;
  cudaEvent_t event;
  NEED(cudaStreamCreate(&stream));
  NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  char *device, *pinned;
  NEED(cudaMalloc(&device, kBulk));
  NEED(cudaMallocHost(&pinned, kBulk));
  std::memset(pinned, 1, kBulk);
  std::vector<char> pageable(kBulk, 1);
  const auto none = [] {};
  const auto settle = [&] { NEED(cudaStreamSynchronize(stream)); };
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return [=] {
      NEED(cudaMemcpyAsync(to, from, bytes, kind, stream));
      NEED(cudaStreamSynchronize(stream));
    };
  };

  int priority;
  measure(
      "stream priority", 5000, [&] { NEED(cudaStreamGetPriority(stream, &priority)); }, none);
  measure(
      "100 launches", 200,
      [&] {
        for (int i = 0; i < 100; ++i) nothing<<<1, 1, 0, stream>>>();
      },
      settle);
  measure(
      "launch and synchronize", 5000,
      [&] {
        nothing<<<1, 1, 0, stream>>>();
        settle();
      },
      none);
  measure(
      "event record and query", 5000,
      [&] {
        NEED(cudaEventRecord(event, stream));
        if (const cudaError_t state = cudaEventQuery(event); state != cudaErrorNotReady)
          NEED(state);
      },
      settle);
  measure("256 B to the device, pageable", 2000,
          copy(device, pageable.data(), kSmall, cudaMemcpyHostToDevice), none);
  measure("256 B to the host, pageable", 2000,
          copy(pageable.data(), device, kSmall, cudaMemcpyDeviceToHost), none);
  measure("64 MiB to the device, pinned", 20, copy(device, pinned, kBulk, cudaMemcpyHostToDevice),
          none);
  measure("64 MiB to the host, pinned", 20, copy(pinned, device, kBulk, cudaMemcpyDeviceToHost),
          none);
  measure("64 MiB to the device, pageable", 20,
          copy(device, pageable.data(), kBulk, cudaMemcpyHostToDevice), none);
  measure("64 MiB to the host, pageable", 20,
          copy(pageable.data(), device, kBulk, cudaMemcpyDeviceToHost), none);
  return 0;
}
