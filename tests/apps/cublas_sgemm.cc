// cuBLAS single precision matrix product, checked against the CPU in a few places. Prints one JSON
// line: values to compare, seconds of work. Build: nvcc -o cublas_sgemm cublas_sgemm.cc -lcublas
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    int error_ = static_cast<int>(call);                                                \
    if (error_ != 0) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, error_); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

int main() {
  const int n = 1024, repeats = 10;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  unsigned state = 1;
  auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f;
  };
  for (float& value : a) value = next();
  for (float& value : b) value = next();
  float *da, *db, *dc;
  CHECK(cudaMalloc(&da, a.size() * sizeof(float)));
  CHECK(cudaMalloc(&db, b.size() * sizeof(float)));
  CHECK(cudaMalloc(&dc, c.size() * sizeof(float)));
  CHECK(cudaMemcpy(da, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
  cublasHandle_t handle;
  CHECK(cublasCreate(&handle));
  const float one = 1, zero = 0;
  CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, da, n, db, n, &zero, dc, n));
  CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i)
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, da, n, db, n, &zero, dc, n));
  CHECK(cudaDeviceSynchronize());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(cudaMemcpy(c.data(), dc, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
  double sum = 0, worst = 0;
  for (float value : c) sum += value;
  for (int k = 0; k < 200; ++k) {  // column-major: c[i + j n] = sum over l of a[i + l n] b[l + j n]
    const int i = (k * 37) % n, j = (k * 101) % n;
    double want = 0;
    for (int l = 0; l < n; ++l) want += static_cast<double>(a[i + l * n]) * b[l + j * n];
    worst = std::fmax(worst, std::fabs(want - c[i + j * n]));
  }
  CHECK(cublasDestroy(handle));
  std::printf("{\"values\": [%.9g, %.9g, %.9g], \"seconds\": %.6f}\n", sum, c[12345], c[n * n - 1],
              seconds);
  return worst < 1e-3 ? 0 : 1;
}
