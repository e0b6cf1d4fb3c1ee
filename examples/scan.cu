// Inclusive prefix sum over many blocks: scan the blocks, scan their totals, add them back. Three
// kernels in stream order.
#include <vector>

#include "check.h"

constexpr int kBlock = 256;

__global__ void scan_blocks(const int* in, int* out, int* totals, int n) {
  __shared__ int buffer[2][kBlock];
  int i = blockIdx.x * kBlock + threadIdx.x, from = 0;
  buffer[0][threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int distance = 1; distance < kBlock; distance *= 2) {
    int to = 1 - from;
    int value = buffer[from][threadIdx.x];
    if (threadIdx.x >= distance) value += buffer[from][threadIdx.x - distance];
    buffer[to][threadIdx.x] = value;
    from = to;
    __syncthreads();
  }
  if (i < n) out[i] = buffer[from][threadIdx.x];
  if (threadIdx.x == kBlock - 1) totals[blockIdx.x] = buffer[from][threadIdx.x];
}

__global__ void scan_totals(int* totals, int count) {
  if (threadIdx.x == 0) {
    for (int i = 1; i < count; ++i) totals[i] += totals[i - 1];
  }
}

__global__ void add_totals(int* out, const int* totals, int n) {
  int i = blockIdx.x * kBlock + threadIdx.x;
  if (blockIdx.x > 0 && i < n) out[i] += totals[blockIdx.x - 1];
}

int main() {
  const int n = 60000, blocks = (n + kBlock - 1) / kBlock;
  std::vector<int> in(n), out(n);
  for (int i = 0; i < n; ++i) in[i] = (i * 31) % 17 - 4;
  int *device_in, *device_out, *totals;
  CHECK(cudaMalloc(&device_in, n * sizeof(int)));
  CHECK(cudaMalloc(&device_out, n * sizeof(int)));
  CHECK(cudaMalloc(&totals, blocks * sizeof(int)));
  CHECK(cudaMemcpy(device_in, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  scan_blocks<<<blocks, kBlock>>>(device_in, device_out, totals, n);
  scan_totals<<<1, 32>>>(totals, blocks);
  add_totals<<<blocks, kBlock>>>(device_out, totals, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(int), cudaMemcpyDeviceToHost));
  long wrong = 0;
  int sum = 0;
  for (int i = 0; i < n; ++i) wrong += out[i] != (sum += in[i]);
  return report("scan", wrong);
}
