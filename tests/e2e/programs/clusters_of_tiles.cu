// A product of matrices as kernels for Hopper make it: clusters of blocks, tiles of tensors copied
// in bulk behind barriers in shared memory, warp matrices, and sums in another block's memory.
#include <cooperative_groups.h>
#include <cuda.h>
#include <mma.h>

#include <cuda/barrier>
#include <vector>

#include "expect.h"

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace {

using namespace nvcuda;
namespace cg = cooperative_groups;
namespace cde = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kSize = 96, kTile = 32, kBlocks = kSize / kTile;

// Each block makes a tile of C; block 0 of each cluster also the sum of the cluster's elements.
__global__ void multiply(const __grid_constant__ CUtensorMap a,
                         const __grid_constant__ CUtensorMap b, float* c, float* sums) {
  __shared__ alignas(128) half left[kTile * kTile], right[kTile * kTile];
  __shared__ Barrier barrier;
  __shared__ float sum;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    cde::fence_proxy_async_shared_cta();
    sum = 0;
  }
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp / 2 * 16, column = warp % 2 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> tile;
  wmma::fill_fragment(tile, 0.0f);
  for (int k = 0; k < kSize; k += kTile) {
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
      cde::cp_async_bulk_tensor_2d_global_to_shared(left, &a, k, blockIdx.y * kTile, barrier);
      cde::cp_async_bulk_tensor_2d_global_to_shared(right, &b, blockIdx.x * kTile, k, barrier);
      token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof left + sizeof right);
    } else {
      token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int step = 0; step < kTile; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
      wmma::load_matrix_sync(fa, left + row * kTile + step, kTile);
      wmma::load_matrix_sync(fb, right + step * kTile + column, kTile);
      wmma::mma_sync(tile, fa, fb, tile);
    }
    __syncthreads();
  }
  float* out = c + (blockIdx.y * kTile + row) * kSize + blockIdx.x * kTile + column;
  wmma::store_matrix_sync(out, tile, kSize, wmma::mem_row_major);
  float mine = 0;
  for (int i = 0; i < tile.num_elements; ++i) mine += tile.x[i];
  atomicAdd(cluster.map_shared_rank(&sum, 0), mine);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) sums[blockIdx.y] = sum;
}

CUtensorMap map_of(half* matrix) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                         cudaEnableDefault, &found));
#else
  CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found));
#endif
  EXPECT(found == cudaDriverEntryPointSuccess);
  CUtensorMap map{};
  const cuuint64_t size[] = {kSize, kSize}, stride[] = {kSize * sizeof(half)};
  const cuuint32_t box[] = {kTile, kTile}, step[] = {1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrix, size, stride, box, step,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  EXPECT(result == CUDA_SUCCESS);
  return map;
}

__global__ void __cluster_dims__(4, 1, 1) add_blocks(float* sum) {
  if (threadIdx.x == 0) atomicAdd(sum, 1.0f);
}

}  // namespace

int main() {
  constexpr int kCount = kSize * kSize;
  std::vector<half> a(kCount), b(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = __float2half(static_cast<float>(i % 7 - 3));
    b[i] = __float2half(static_cast<float>(i % 5 - 1));
  }
  half *da = nullptr, *db = nullptr;
  float *dc = nullptr, *sums = nullptr;
  CHECK(cudaMalloc(&da, kCount * sizeof(half)));
  CHECK(cudaMalloc(&db, kCount * sizeof(half)));
  CHECK(cudaMalloc(&dc, kCount * sizeof(float)));
  CHECK(cudaMalloc(&sums, kBlocks * sizeof(float)));
  CHECK(cudaMemcpy(da, a.data(), kCount * sizeof(half), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), kCount * sizeof(half), cudaMemcpyHostToDevice));

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks, kBlocks);
  config.blockDim = dim3(128);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, multiply, map_of(da), map_of(db), dc, sums));
  std::vector<float> c(kCount), sum(kBlocks), expected(kBlocks);
  CHECK(cudaMemcpy(c.data(), dc, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(sum.data(), sums, kBlocks * sizeof(float), cudaMemcpyDeviceToHost));
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      int product = 0;
      for (int k = 0; k < kSize; ++k)
        product += ((row * kSize + k) % 7 - 3) * ((k * kSize + column) % 5 - 1);
      EXPECT(c[row * kSize + column] == static_cast<float>(product));
      expected[row / kTile] += static_cast<float>(product);
    }
  }
  EXPECT(sum == expected);

  // A grid that is no multiple of the clusters: the launch says so, or who waits for it.
  add_blocks<<<6, 32>>>(sums);
  const cudaError_t at_launch = cudaGetLastError(), at_end = cudaDeviceSynchronize();
  EXPECT(at_launch != cudaSuccess || at_end != cudaSuccess);
  CHECK(cudaMemcpy(sum.data(), sums, kBlocks * sizeof(float), cudaMemcpyDeviceToHost));
  EXPECT(sum == expected);
  std::puts("clusters_of_tiles: right");
  return 0;
}
