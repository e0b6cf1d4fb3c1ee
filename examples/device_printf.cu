// printf in device code reaches this process's stdout, in order with the host's own output.
#include "check.h"

__global__ void hello(int round) {
  printf("round %d: block %d thread %d says %s %.2f\n", round, blockIdx.x, threadIdx.x, "hello",
         0.5 * threadIdx.x);
}

int main() {
  for (int round = 0; round < 3; ++round) {
    std::printf("host before round %d\n", round);
    std::fflush(stdout);
    hello<<<1, 2>>>(round);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }
  return report("device_printf", 0);
}
