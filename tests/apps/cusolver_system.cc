// cuSOLVER: an LU factorisation in double precision and the solution of a system with it. Build:
// nvcc -o cusolver_system cusolver_system.cc -lcusolver
#include <cusolverDn.h>

#include <algorithm>
#include <cmath>

#include "library.h"

int main() {
  const int n = 300;
  std::vector<double> matrix = random_values<double>(size_t{1} * n * n);
  for (int i = 0; i < n; ++i) matrix[size_t{1} * i * n + i] += n;  // column-major, well conditioned
  const std::vector<double> right = random_values<double>(n, 7);
  double* const a = to_device(matrix);
  double* const x = to_device(right);
  int* const pivots = to_device(std::vector<int>(n));
  int* const info = to_device(std::vector<int>(1));
  cusolverDnHandle_t handle;
  CHECK(cusolverDnCreate(&handle));
  int size = 0;
  CHECK(cusolverDnDgetrf_bufferSize(handle, n, n, a, n, &size));
  double* const work = to_device(std::vector<double>(size));
  const double seconds = timed([&] {
    CHECK(cusolverDnDgetrf(handle, n, n, a, n, work, pivots, info));
    CHECK(cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 1, a, n, pivots, x, n, info));
  });
  const std::vector<double> solution = to_host(x, n);
  double worst = to_host(info, 1)[0], sum = 0;
  for (int i = 0; i < n; ++i) {
    double row = 0;
    for (int j = 0; j < n; ++j) row += matrix[i + size_t{1} * j * n] * solution[j];
    worst = std::max(worst, std::fabs(row - right[i]));
    sum += solution[i];
  }
  CHECK(cusolverDnDestroy(handle));
  return report(worst < 1e-10, {sum, solution[0], solution[n - 1]}, seconds);
}
