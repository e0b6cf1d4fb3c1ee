// cuSPARSE: a sparse matrix (CSR) times a vector. Build:
// nvcc -o cusparse_product cusparse_product.cc -lcusparse
#include <cusparse.h>

#include <algorithm>
#include <cmath>

#include "library.h"

int main() {
  const int n = 20000, per_row = 5;
  std::vector<int> offsets(n + 1), columns;
  for (int i = 0; i < n; ++i) {
    offsets[i] = static_cast<int>(columns.size());
    for (int k = 0; k < per_row; ++k) columns.push_back((i + k * 3001) % n);
    std::sort(columns.end() - per_row, columns.end());
  }
  offsets[n] = static_cast<int>(columns.size());
  const std::vector<float> values = random_values<float>(columns.size());
  const std::vector<float> vector = random_values<float>(n, 5);
  float* const result = to_device(std::vector<float>(n));
  cusparseHandle_t handle;
  cusparseSpMatDescr_t matrix;
  cusparseDnVecDescr_t x, y;
  CHECK(cusparseCreate(&handle));
  CHECK(cusparseCreateCsr(&matrix, n, n, static_cast<int64_t>(columns.size()), to_device(offsets),
                          to_device(columns), to_device(values), CUSPARSE_INDEX_32I,
                          CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
  CHECK(cusparseCreateDnVec(&x, n, to_device(vector), CUDA_R_32F));
  CHECK(cusparseCreateDnVec(&y, n, result, CUDA_R_32F));
  const float one = 1, zero = 0;
  size_t bytes = 0;
  CHECK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, x, &zero, y,
                                CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
  char* const buffer = to_device(std::vector<char>(std::max<size_t>(bytes, 1)));
  const double seconds = timed([&] {
    CHECK(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, x, &zero, y,
                       CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer));
  });
  double worst = 0, sum = 0;
  const std::vector<float> got = to_host(result, n);
  for (int i = 0; i < n; ++i) {
    double row = 0;
    for (int k = offsets[i]; k < offsets[i + 1]; ++k)
      row += static_cast<double>(values[k]) * vector[columns[k]];
    worst = std::max(worst, std::fabs(row - got[i]));
    sum += got[i];
  }
  CHECK(cusparseDestroy(handle));
  return report(worst < 1e-5, {sum, got[0], got[n - 1]}, seconds);
}
