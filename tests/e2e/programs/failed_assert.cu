// Device-side asserts that fail in three threads: each says so on stderr, the error is reported and
// stays.
#undef NDEBUG
#include <cassert>

#include "expect.h"

__global__ void check(const int* values, int limit) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(values[i] < limit);
}

int main() {
  int values[64] = {};
  for (int i = 32; i < 35; ++i) values[i] = 100;
  int* device;
  CHECK(cudaMalloc(&device, sizeof values));
  CHECK(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
  check<<<2, 32>>>(device, 101);
  CHECK(cudaDeviceSynchronize());
  check<<<2, 32>>>(device, 100);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorAssert);
  EXPECT_ERROR(cudaMalloc(&device, 64), cudaErrorAssert);
  std::printf("failed_assert: right\n");
  return 0;
}
