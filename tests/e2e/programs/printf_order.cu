// Device printf: formats, several streams, and its place between the host's own lines.
#include "expect.h"

__global__ void say(int round) { printf("device %d\n", round); }

__global__ void formats() {
  printf("%d %u %x %c %5.2f %e %s %lld %%\n", -5, 7u, 255, 'z', 3.14159, 1e10, "text",
         1234567890123LL);
}

__global__ void many(int lines) {
  for (int i = 0; i < lines; ++i) printf("line %d\n", i);
}

int main() {
  for (int i = 0; i < 5; ++i) {
    std::printf("host %d\n", i);
    std::fflush(stdout);
    say<<<1, 1>>>(i);
    CHECK(cudaDeviceSynchronize());
  }
  formats<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  many<<<1, 1, 0, stream>>>(200);
  CHECK(cudaStreamSynchronize(stream));
  std::printf("end\n");
  return 0;
}
