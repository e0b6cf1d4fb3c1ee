// Lanes of one warp go different ways: nested branches, loops of different length, early exits, a
// switch, recursion.
#include <vector>

#include "check.h"

__host__ __device__ int collatz(int n) {
  int steps = 0;
  while (n != 1) {
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    if (++steps > 200) return -1;
  }
  return steps;
}

__host__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__host__ __device__ int classify(int i) {
  switch (i % 7) {
    case 0:
      return collatz(i + 1);
    case 1:
      return i * i;
    case 2:
      return fibonacci(i % 10);
    case 3:
      for (int k = 0; k < i; ++k) {
        if (k * k > i) return k;
      }
      return 0;
    case 4:
      return i < 500 ? (i % 2 ? -i : i) : (i % 3 ? 2 * i : 3 * i);
    default:
      return 42;
  }
}

__global__ void run(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = classify(i);
}

int main() {
  const int n = 3001;
  int* device_out;
  std::vector<int> out(n);
  CHECK(cudaMalloc(&device_out, n * sizeof(int)));
  run<<<(n + 95) / 96, 96>>>(device_out, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(int), cudaMemcpyDeviceToHost));
  long wrong = 0;
  for (int i = 0; i < n; ++i) wrong += out[i] != classify(i);
  return report("divergent", wrong);
}
