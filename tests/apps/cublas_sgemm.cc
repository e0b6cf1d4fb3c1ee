// cuBLAS single precision matrix product, checked against the CPU in a few places. Build:
// nvcc -o cublas_sgemm cublas_sgemm.cc -lcublas
#include <cublas_v2.h>

#include <cmath>

#include "library.h"

int main() {
  const int n = 1024, repeats = 10;
  const std::vector<float> a = random_values<float>(size_t{1} * n * n);
  const std::vector<float> b = random_values<float>(size_t{1} * n * n, 2);
  float *const da = to_device(a), *const db = to_device(b);
  float* const dc = to_device(std::vector<float>(a.size()));
  cublasHandle_t handle;
  CHECK(cublasCreate(&handle));
  const float one = 1, zero = 0;
  const auto multiply = [&] {
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, da, n, db, n, &zero, dc, n));
  };
  multiply();
  const double seconds = timed([&] {
    for (int i = 0; i < repeats; ++i) multiply();
  });
  const std::vector<float> c = to_host(dc, a.size());
  double sum = 0, worst = 0;
  for (const float value : c) sum += value;
  for (int k = 0; k < 200; ++k) {  // column-major: c[i + j n] = sum over l of a[i + l n] b[l + j n]
    const int i = (k * 37) % n, j = (k * 101) % n;
    double want = 0;
    for (int l = 0; l < n; ++l) want += static_cast<double>(a[i + l * n]) * b[l + j * n];
    worst = std::fmax(worst, std::fabs(want - c[i + j * n]));
  }
  CHECK(cublasDestroy(handle));
  return report(worst < 1e-3, {sum, c[12345], c[size_t{1} * n * n - 1]}, seconds);
}
