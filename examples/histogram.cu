// 64 bins: atomics in shared memory per block, then atomics in global memory.
#include <vector>

#include "check.h"

constexpr int kBins = 64;

__global__ void histogram(const unsigned char* data, int n, unsigned* bins) {
  __shared__ unsigned local[kBins];
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[data[i] % kBins], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

int main() {
  const int n = 250000;
  std::vector<unsigned char> data(n);
  std::vector<unsigned> want(kBins), got(kBins);
  unsigned state = 7;
  for (unsigned char& value : data) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<unsigned char>(state >> 24);
    ++want[value % kBins];
  }
  unsigned char* device_data;
  unsigned* bins;
  CHECK(cudaMalloc(&device_data, n));
  CHECK(cudaMalloc(&bins, kBins * sizeof(unsigned)));
  CHECK(cudaMemset(bins, 0, kBins * sizeof(unsigned)));
  CHECK(cudaMemcpy(device_data, data.data(), n, cudaMemcpyHostToDevice));
  histogram<<<24, 128>>>(device_data, n, bins);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(got.data(), bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
  long wrong = 0;
  for (int i = 0; i < kBins; ++i) wrong += got[i] != want[i];
  return report("histogram", wrong);
}
