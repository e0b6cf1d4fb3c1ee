// Work for bench/two_servers.sh: each visible device has a thread, all do the same, and a line says
// how fast each was. With two devices, also copies from one to the other. Plain CUDA.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error_ = (call);                                                         \
    if (error_ != cudaSuccess) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorName(error_)); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBytes = 64 << 20;
constexpr int kLaunches = 3000, kCopies = 8, kCalls = 1000;

__global__ void touch(int* to) { *to += 1; }

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Rates {
  double launches = 0, to_device = 0, to_host = 0, calls = 0;
};

void measure(int device, Rates* rates) {
  CHECK(cudaSetDevice(device));
  int* memory = nullptr;
  CHECK(cudaMalloc(&memory, kBytes));
  CHECK(cudaMemset(memory, 0, kBytes));
  std::vector<char> host(kBytes, 1);
  touch<<<1, 1>>>(memory);
  CHECK(cudaDeviceSynchronize());
  auto begin = Clock::now();
  for (int i = 0; i < kLaunches; ++i) touch<<<1, 1>>>(memory);
  CHECK(cudaDeviceSynchronize());
  rates->launches = kLaunches / seconds_since(begin);
  begin = Clock::now();
  for (int i = 0; i < kCopies; ++i)
    CHECK(cudaMemcpy(memory, host.data(), kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
  rates->to_device = kCopies * kBytes / seconds_since(begin);
  begin = Clock::now();
  for (int i = 0; i < kCopies; ++i)
    CHECK(cudaMemcpy(host.data(), memory, kBytes, cudaMemcpyDeviceToHost));
  rates->to_host = kCopies * kBytes / seconds_since(begin);
  begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) CHECK(cudaStreamSynchronize(nullptr));
  rates->calls = seconds_since(begin) / kCalls;
  CHECK(cudaFree(memory));
}

void copies_between() {
  char *first = nullptr, *second = nullptr;
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&second, kBytes));
  CHECK(cudaSetDevice(0));
  CHECK(cudaMalloc(&first, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (const size_t bytes : {size_t{4}, size_t{64} << 10, size_t{1} << 20, kBytes}) {
    const int count = bytes < (1 << 20) ? 200 : 8;
    for (const bool wait : {true, false}) {
      const auto copy = [&] {
        CHECK(wait ? cudaMemcpyPeer(second, 1, first, 0, bytes)
                   : cudaMemcpyPeerAsync(second, 1, first, 0, bytes, stream));
      };
      copy();
      CHECK(cudaStreamSynchronize(stream));
      const auto begin = Clock::now();
      for (int i = 0; i < count; ++i) copy();
      CHECK(cudaStreamSynchronize(stream));
      const double each = seconds_since(begin) / count;
      std::printf("between %zu %s %.1f us %.3f GB/s\n", bytes, wait ? "waiting" : "in-stream",
                  each * 1e6, static_cast<double>(bytes) / each / 1e9);
    }
  }
}

}  // namespace

int main() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  std::vector<Rates> rates(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int device = 0; device < count; ++device)
    threads.emplace_back(measure, device, &rates[static_cast<size_t>(device)]);
  for (std::thread& thread : threads) thread.join();
  for (const Rates& each : rates) {
    std::printf("device %.0f launches/s %.3f GB/s to it %.3f GB/s back %.1f us a call\n",
                each.launches, each.to_device / 1e9, each.to_host / 1e9, each.calls * 1e6);
  }
  if (count > 1) copies_between();
  return 0;
}
