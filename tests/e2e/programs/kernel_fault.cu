// A kernel that writes where nothing is: the error is reported, stays, and has its name.
#include "expect.h"

__global__ void write(int* p) { *p = 1; }

int main() {
  int* good;
  CHECK(cudaMalloc(&good, 64));
  write<<<1, 1>>>(reinterpret_cast<int*>(0x40));
  CHECK(cudaGetLastError());
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorIllegalAddress);
  int value = 0;
  EXPECT_ERROR(cudaMemcpy(&value, good, sizeof(value), cudaMemcpyDeviceToHost),
               cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaMalloc(&good, 64), cudaErrorIllegalAddress);
  std::printf("kernel_fault: right\n");
  return 0;
}
