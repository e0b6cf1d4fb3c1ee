// Sum and maximum of an array: warps reduce with shuffles, blocks through shared memory, the grid
// with an atomic.
#include <climits>
#include <vector>

#include "check.h"

__inline__ __device__ int warp_sum(int value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

__inline__ __device__ int warp_max(int value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    int other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = value > other ? value : other;
  }
  return value;
}

__global__ void reduce(const int* data, int n, int* sum, int* maximum) {
  __shared__ int sums[32], maxima[32];
  int my_sum = 0, my_max = INT_MIN;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    my_sum += data[i];
    my_max = max(my_max, data[i]);
  }
  my_sum = warp_sum(my_sum);
  my_max = warp_max(my_max);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    sums[warp] = my_sum;
    maxima[warp] = my_max;
  }
  __syncthreads();
  if (warp == 0) {
    int warps = blockDim.x / 32;
    my_sum = warp_sum(lane < warps ? sums[lane] : 0);
    my_max = warp_max(lane < warps ? maxima[lane] : INT_MIN);
    if (lane == 0) {
      atomicAdd(sum, my_sum);
      atomicMax(maximum, my_max);
    }
  }
}

int main() {
  const int n = 300000;
  std::vector<int> data(n);
  int want_sum = 0, want_max = INT_MIN;
  unsigned state = 1;
  for (int& value : data) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<int>(state >> 16) % 2001 - 1000;
    want_sum += value;
    want_max = value > want_max ? value : want_max;
  }
  int *device_data, *results;
  const int start[2] = {0, INT_MIN};
  int got[2];
  CHECK(cudaMalloc(&device_data, n * sizeof(int)));
  CHECK(cudaMalloc(&results, sizeof(start)));
  CHECK(cudaMemcpy(device_data, data.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(results, start, sizeof(start), cudaMemcpyHostToDevice));
  reduce<<<32, 256>>>(device_data, n, results, results + 1);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(got, results, sizeof(got), cudaMemcpyDeviceToHost));
  std::printf("sum %d, maximum %d\n", got[0], got[1]);
  return report("reduction", (got[0] != want_sum) + (got[1] != want_max));
}
