// More work than a driver's queue takes, for longer than a client waits for a sign of life:
// slow_queue MILLISECONDS-PER-KERNEL KERNELS
#include <cstdlib>

#include "expect.h"

__global__ void slow(int* value, unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
  *value += 1;
}

int main(int count, char** values) {
  if (count != 3) return 2;
  const unsigned long long nanoseconds = std::strtoull(values[1], nullptr, 10) * 1000000;
  const int kernels = std::atoi(values[2]);
  int *device, host = -1;
  CHECK(cudaMalloc(&device, sizeof(int)));
  CHECK(cudaMemset(device, 0, sizeof(int)));
  for (int i = 0; i < kernels; ++i) slow<<<1, 1>>>(device, nanoseconds);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host == kernels);
  std::printf("slow_queue: right\n");
  return 0;
}
