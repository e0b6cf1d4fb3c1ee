// Constant and global variables of a program, written and read by name.
#include "check.h"

__constant__ float coefficients[4];
__device__ int counter = 5;
__device__ float table[128];

__global__ void evaluate() {
  float x = threadIdx.x * 0.125f;
  table[threadIdx.x] =
      ((coefficients[3] * x + coefficients[2]) * x + coefficients[1]) * x + coefficients[0];
  atomicAdd(&counter, 2);
}

int main() {
  const float want[4] = {1.0f, -2.0f, 0.5f, 0.25f};
  CHECK(cudaMemcpyToSymbol(coefficients, want, sizeof(want)));
  evaluate<<<1, 128>>>();
  CHECK(cudaGetLastError());
  float got[128], back[2];
  int count = 0;
  CHECK(cudaMemcpyFromSymbol(got, table, sizeof(got)));
  CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
  CHECK(cudaMemcpyFromSymbol(back, coefficients, sizeof(back), 2 * sizeof(float)));
  long wrong = (count != 5 + 2 * 128) + (back[0] != want[2]) + (back[1] != want[3]);
  for (int i = 0; i < 128; ++i) {
    float x = i * 0.125f;
    // exact: few bits are needed
    wrong += got[i] != ((want[3] * x + want[2]) * x + want[1]) * x + want[0];
  }
  void* address = nullptr;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&address, table));
  CHECK(cudaGetSymbolSize(&bytes, table));
  wrong += address == nullptr || bytes != sizeof(got);
  return report("constant_symbols", wrong);
}
