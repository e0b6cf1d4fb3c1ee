// 64 MiB of mapped pinned memory that a kernel writes: what launch and synchronise cost a host that
// looks at one page, and at all of them. What the host could access until a second or two ago is
// compared at each launch, so memory that it looks at seldom is measured after a while.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{64} << 20, kCount = kBytes / sizeof(int);
constexpr size_t kPage = 4096 / sizeof(int);

using Clock = std::chrono::steady_clock;

void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "mapped_touch: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}
#define NEED(call) require(call, #call)

// One word in each page, or all of them.
__global__ void fill(int* to, size_t count, size_t stride, int value) {
  const size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (at < count) to[at * stride] = value;
}

void launch(int* to, size_t stride, int value) {
  const size_t count = kCount / stride;
  fill<<<static_cast<unsigned>((count + 255) / 256), 256>>>(to, count, stride, value);
  NEED(cudaGetLastError());
  NEED(cudaDeviceSynchronize());
}

void launch_for_a_while(int* to) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(3);
  while (Clock::now() < end) launch(to, kPage, 0);
}

template <typename Look>
double median_ms(int* device, size_t stride, Look&& look) {
  std::vector<double> times;
  const int rounds = stride == 1 ? 3 : 21;
  for (int round = 1; round <= rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    launch(device, stride, round);
    look(round);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  int *host, *device, *plain;
  NEED(cudaHostAlloc(&host, kBytes, cudaHostAllocMapped));
  NEED(cudaHostGetDevicePointer(&device, host, 0));
  NEED(cudaMalloc(&plain, kBytes));
  const auto expect = [&](size_t at, int value) {
    if (host[at] == value) return;
    std::fprintf(stderr, "mapped_touch: word %zu is %d, not %d\n", at, host[at], value);
    std::exit(1);
  };
  for (const size_t stride : {kPage, size_t{1}}) {
    const double bare = median_ms(plain, stride, [](int) {});
    launch_for_a_while(device);
    const double one = median_ms(device, stride, [&](int round) {
      expect(static_cast<size_t>(round) * 1117 % (kCount / kPage) * kPage, round);
    });
    const double all = median_ms(device, stride, [&](int round) {
      for (size_t at = 0; at < kCount; at += kPage) expect(at, round);
    });
    std::printf("%s written: device memory %.2f ms; mapped, one page seen %.2f ms, all %.2f ms\n",
                stride == 1 ? "all words" : "a word of each page", bare, one, all);
  }
  return 0;
}
