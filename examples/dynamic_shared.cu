// Shared memory whose size the launch decides, more than the default 48 KiB where the device offers
// it.
#include <vector>

#include "check.h"

extern __shared__ int scratch[];

__global__ void reverse(const int* in, int* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) scratch[i] = in[blockIdx.x * n + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = scratch[n - 1 - i];
}

int main() {
  int limit = 0;
  CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const int bytes = limit > 60000 ? 60000 : 40000, n = bytes / 4, blocks = 3;
  CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  std::vector<int> in(blocks * n), out(blocks * n);
  for (int i = 0; i < blocks * n; ++i) in[i] = i * 5 - 3;
  int *device_in, *device_out;
  CHECK(cudaMalloc(&device_in, in.size() * sizeof(int)));
  CHECK(cudaMalloc(&device_out, in.size() * sizeof(int)));
  CHECK(cudaMemcpy(device_in, in.data(), in.size() * sizeof(int), cudaMemcpyHostToDevice));
  reverse<<<blocks, 256, bytes>>>(device_in, device_out, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(out.data(), device_out, in.size() * sizeof(int), cudaMemcpyDeviceToHost));
  long wrong = 0;
  for (int b = 0; b < blocks; ++b) {
    for (int i = 0; i < n; ++i) wrong += out[b * n + i] != in[b * n + n - 1 - i];
  }
  return report("dynamic_shared", wrong);
}
