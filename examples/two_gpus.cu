// Two GPUs in one program: each has half of the work, then one reads the other's half. Runs on one
// GPU too.
#include <vector>

#include "check.h"

__global__ void square(float* data, int n, int first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = static_cast<float>(first + i) * static_cast<float>(first + i);
}

int main() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  const int parts = 2, n = 50000;
  std::vector<float*> data(parts);
  std::vector<cudaStream_t> streams(parts);
  for (int p = 0; p < parts; ++p) {
    CHECK(cudaSetDevice(p % count));
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, p % count));
    std::printf("part %d runs on device %d of %d: %s\n", p, p % count, count, properties.name);
    CHECK(cudaStreamCreate(&streams[p]));
    CHECK(cudaMalloc(&data[p], n * sizeof(float)));
    square<<<(n + 255) / 256, 256, 0, streams[p]>>>(data[p], n, p * n);
    CHECK(cudaGetLastError());
  }
  std::vector<float> out(parts * n);
  for (int p = 0; p < parts; ++p) {
    CHECK(cudaSetDevice(p % count));
    CHECK(cudaStreamSynchronize(streams[p]));
    CHECK(cudaMemcpy(&out[p * n], data[p], n * sizeof(float), cudaMemcpyDeviceToHost));
  }
  long wrong = 0;
  for (int i = 0; i < parts * n; ++i)
    wrong += out[i] != static_cast<float>(i) * static_cast<float>(i);

  // The second half travels to the first GPU, device to device.
  CHECK(cudaMemcpyPeer(data[0], 0, data[1], 1 % count, n * sizeof(float)));
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpy(out.data(), data[0], n * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) wrong += out[i] != out[n + i];
  return report("two_gpus", wrong);
}
