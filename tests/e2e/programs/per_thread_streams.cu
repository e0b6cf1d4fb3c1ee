// Built with --default-stream per-thread: every thread's default stream is its own.
#include <thread>
#include <vector>

#include "expect.h"

__global__ void square(int* data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= data[i];
}

int main() {
  std::vector<std::thread> workers;
  for (int t = 0; t < 6; ++t) {
    workers.emplace_back([t] {
      const int n = 500;
      std::vector<int> values(n);
      for (int i = 0; i < n; ++i) values[i] = i + t;
      int* data;
      CHECK(cudaMalloc(&data, n * sizeof(int)));
      CHECK(cudaMemcpyAsync(data, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
      square<<<4, 128>>>(data, n);
      CHECK(cudaMemcpyAsync(values.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost));
      CHECK(cudaStreamSynchronize(0));
      for (int i = 0; i < n; ++i) EXPECT(values[i] == (i + t) * (i + t));
      CHECK(cudaFree(data));
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::printf("per_thread_streams: right\n");
  return 0;
}
