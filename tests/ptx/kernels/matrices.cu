// Products by the C++ interface for warp matrices. Real compilers make the PTX, for several
// architectures.
#include <mma.h>

using namespace nvcuda;
using wmma::col_major;
using wmma::row_major;

// D = 2 * A * B + C: the doubling goes through the fragment's elements. `a_wide`, `b_wide`: the
// strides; `layout` that of C and D, whose stride is `c_wide`.
template <typename T, int M, int N, int K, typename LayoutA, typename LayoutB, typename Memory,
          typename R>
__device__ void product(const Memory* a, unsigned a_wide, const Memory* b, unsigned b_wide,
                        const R* c, R* d, unsigned c_wide, wmma::layout_t layout) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, LayoutA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LayoutB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, R> fc, sum;
  wmma::load_matrix_sync(fa, a, a_wide);
  wmma::load_matrix_sync(fb, b, b_wide);
  wmma::load_matrix_sync(fc, c, c_wide, layout);
  for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = fa.x[i] + fa.x[i];
  wmma::mma_sync(sum, fa, fb, fc);
  wmma::store_matrix_sync(d, sum, c_wide, layout);
}

#define PRODUCT(name, T, Memory, R, M, N, K)                                                     \
  extern "C" __global__ void name(const Memory* a, const Memory* b, const R* c, R* d) {          \
    product<T, M, N, K, row_major, col_major>(a, K, b, K, c, d, N, wmma::mem_row_major);         \
    product<T, M, N, K, col_major, row_major>(a, M, b, N, c, d + M * N, M, wmma::mem_col_major); \
  }

PRODUCT(half_16_16_16, half, half, float, 16, 16, 16)
PRODUCT(half_32_8_16, half, half, half, 32, 8, 16)
PRODUCT(half_8_32_16, half, half, float, 8, 32, 16)
PRODUCT(bfloat_16_16_16, __nv_bfloat16, __nv_bfloat16, float, 16, 16, 16)
PRODUCT(bfloat_32_8_16, __nv_bfloat16, __nv_bfloat16, float, 32, 8, 16)
PRODUCT(bfloat_8_32_16, __nv_bfloat16, __nv_bfloat16, float, 8, 32, 16)
PRODUCT(tf32_16_16_8, wmma::precision::tf32, float, float, 16, 16, 8)
PRODUCT(double_8_8_4, double, double, double, 8, 8, 4)
PRODUCT(signed_16_16_16, signed char, signed char, int, 16, 16, 16)
PRODUCT(unsigned_32_8_16, unsigned char, unsigned char, int, 32, 8, 16)
PRODUCT(signed_8_32_16, signed char, signed char, int, 8, 32, 16)

// Elements of less than a byte: A by rows, B by columns. d: the product of nibbles, then the bits'.
extern "C" __global__ void narrow(const unsigned* a, const unsigned* b, int* d) {
  using namespace wmma::experimental;
  wmma::fragment<wmma::matrix_a, 8, 8, 32, precision::s4, row_major> na;
  wmma::fragment<wmma::matrix_b, 8, 8, 32, precision::s4, col_major> nb;
  wmma::fragment<wmma::accumulator, 8, 8, 32, int> nc;
  wmma::load_matrix_sync(na, a, 32);
  wmma::load_matrix_sync(nb, b, 32);
  wmma::fill_fragment(nc, 0);
  wmma::mma_sync(nc, na, nb, nc);
  wmma::store_matrix_sync(d, nc, 8, wmma::mem_row_major);
  wmma::fragment<wmma::matrix_a, 8, 8, 128, precision::b1, row_major> ba;
  wmma::fragment<wmma::matrix_b, 8, 8, 128, precision::b1, col_major> bb;
  wmma::fragment<wmma::accumulator, 8, 8, 128, int> bc;
  wmma::load_matrix_sync(ba, a, 128);
  wmma::load_matrix_sync(bb, b, 128);
  wmma::fill_fragment(bc, 1);
  wmma::bmma_sync(bc, ba, bb, bc, bmmaBitOpAND);
  wmma::store_matrix_sync(d + 64, bc, 8, wmma::mem_row_major);
}

// A product of 32 x 32 matrices of half by four warps, through shared memory.
extern "C" __global__ void through_shared(const half* a, const half* b, float* d) {
  __shared__ __align__(32) half as[32 * 32], bs[32 * 32];
  for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) as[i] = a[i], bs[i] = b[i];
  __syncthreads();
  const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < 32; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, row_major> fb;
    wmma::load_matrix_sync(fa, as + row * 32 + k, 32);
    wmma::load_matrix_sync(fb, bs + k * 32 + column, 32);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(d + row * 32 + column, sum, 32, wmma::mem_row_major);
}
