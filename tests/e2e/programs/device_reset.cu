// cudaDeviceReset gives everything of the device up; the next call begins anew, as often as one
// likes. What was left allocated goes with it.
#include "expect.h"

__global__ void put(int* to, int value) { *to = value; }

int main() {
  for (int round = 1; round <= 3; ++round) {
    int *device, *host, value = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMallocHost(&host, sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    put<<<1, 1, 0, stream>>>(device, round);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(host, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(*host == round);
    CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == round);
    CHECK(cudaDeviceReset());
    if (round == 2) CHECK(cudaDeviceReset());  // nothing is there to be reset
  }
  std::printf("device_reset: right\n");
  return 0;
}
