// Copies much larger than one frame, pageable and pinned, both ways, and a device whose result
// depends on every byte.
#include <vector>

#include "expect.h"

__global__ void sum(const unsigned* data, size_t n, unsigned long long* total) {
  unsigned long long mine = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    mine += data[i] * (i % 7 + 1);
  atomicAdd(total, mine);
}

int main() {
  const size_t n = (size_t{40} << 20) / sizeof(unsigned) + 13;
  std::vector<unsigned> in(n), out(n);
  for (size_t i = 0; i < n; ++i) in[i] = static_cast<unsigned>(i * 2654435761u);
  unsigned *data, *copy, *pinned;
  unsigned long long *total, got = 0;
  CHECK(cudaMalloc(&data, n * sizeof(unsigned)));
  CHECK(cudaMalloc(&copy, n * sizeof(unsigned)));
  CHECK(cudaMalloc(&total, sizeof(got)));
  CHECK(cudaMemset(total, 0, sizeof(got)));
  CHECK(cudaMemcpy(data, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  const size_t part = 100003;
  sum<<<8, 128>>>(data + n - part, part, total);
  CHECK(cudaMemcpy(&got, total, sizeof(got), cudaMemcpyDeviceToHost));
  unsigned long long want = 0;
  for (size_t i = 0; i < part; ++i) want += in[n - part + i] * (i % 7 + 1);
  EXPECT(got == want);
  CHECK(cudaMemcpyAsync(copy, data, n * sizeof(unsigned), cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(out.data(), copy, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  EXPECT(out == in);
  CHECK(cudaMallocHost(&pinned, n * sizeof(unsigned)));
  CHECK(cudaMemcpyAsync(pinned, copy, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaDeviceSynchronize());
  for (size_t i = 0; i < n; ++i) EXPECT(pinned[i] == in[i]);
  CHECK(cudaFreeHost(pinned));
  std::printf("large_copy: right\n");
  return 0;
}
