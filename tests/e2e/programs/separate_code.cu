// Device code in two files that nvcc compiled for other GPUs to link (-rdc=true, PTX alone): the
// driver links it when the program starts.
#include <cstdio>

#include "separate_code.h"

namespace {

__global__ void apply(int* values) {
  values[threadIdx.x] = twice(static_cast<int>(threadIdx.x)) + offsets[threadIdx.x];
}

}  // namespace

int main() {
  int* values = nullptr;
  int host[kOffsets] = {};
  cudaError_t result = cudaMalloc(&values, sizeof host);
  if (result == cudaSuccess) {
    apply<<<1, kOffsets>>>(values);
    result = cudaGetLastError();
  }
  if (result == cudaSuccess) result = cudaMemcpy(host, values, sizeof host, cudaMemcpyDefault);
  const int expected[kOffsets] = {10, 22, 34, 46};
  bool right = result == cudaSuccess;
  for (int i = 0; i < kOffsets; ++i) right = right && host[i] == expected[i];
  if (!right) {
    std::fprintf(stderr, "separate_code: %s: %d %d %d %d\n", cudaGetErrorName(result), host[0],
                 host[1], host[2], host[3]);
    return 1;
  }
  std::printf("separate_code: right\n");
  return 0;
}
