// What a kernel printed is there before a large copy to ordinary memory returns.
#include <vector>

#include "expect.h"

__global__ void say(int round) { printf("device %d\n", round); }

int main() {
  std::vector<char> host(3 << 20);
  char* device;
  CHECK(cudaMalloc(&device, host.size()));
  for (int round = 0; round < 20; ++round) {
    std::printf("host %d\n", round);
    std::fflush(stdout);
    say<<<1, 1>>>(round);
    CHECK(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost));
  }
  return 0;
}
