// Prints device count and memory as the program sees them, and tries to allocate what the arguments
// say (MiB each): one line per try.
#include "expect.h"

int main(int count, char** values) {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  std::printf("devices %d\n", devices);
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("total %zu MiB, property %zu MiB\n", total >> 20, properties.totalGlobalMem >> 20);
  EXPECT(free_bytes <= total);
  for (int i = 1; i < count; ++i) {
    void* p = nullptr;
    cudaError_t result = cudaMalloc(&p, static_cast<size_t>(std::atoi(values[i])) << 20);
    std::printf("%s MiB: %s\n", values[i], cudaGetErrorName(result));
    cudaGetLastError();
  }
  return 0;
}
