// Kernels of the usual parallel patterns. Compiled to PTX and run by compiled_test.cc.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  constexpr int kTile = 16;
  __shared__ float sa[kTile][kTile], sb[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * kTile + x,
            row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    sa[y][x] = a[row * n + k + x];
    sb[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += sa[y][i] * sb[i][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void reduce(const float* in, float* out, int n) {
  extern __shared__ float partial[];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) total += partial[i];
    atomicAdd(out, total);
  }
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

// Inclusive scan of one block.
extern "C" __global__ void scan(int* data) {
  __shared__ int sums[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int v = data[threadIdx.x];
  for (int d = 1; d < 32; d *= 2) {
    const int up = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += up;
  }
  if (lane == 31) sums[warp] = v;
  __syncthreads();
  if (warp == 0) {
    int s = sums[lane];
    for (int d = 1; d < 32; d *= 2) {
      const int up = __shfl_up_sync(~0u, s, d);
      if (lane >= d) s += up;
    }
    sums[lane] = s;
  }
  __syncthreads();
  data[threadIdx.x] = v + (warp > 0 ? sums[warp - 1] : 0);
}

// Bitonic sort of one block in shared memory.
extern "C" __global__ void sort(unsigned* data) {
  extern __shared__ unsigned keys[];
  const unsigned i = threadIdx.x;
  keys[i] = data[i];
  __syncthreads();
  for (unsigned k = 2; k <= blockDim.x; k *= 2) {
    for (unsigned j = k / 2; j > 0; j /= 2) {
      const unsigned other = i ^ j;
      if (other > i && ((i & k) == 0) == (keys[i] > keys[other])) {
        const unsigned t = keys[i];
        keys[i] = keys[other];
        keys[other] = t;
      }
      __syncthreads();
    }
  }
  data[i] = keys[i];
}

extern "C" __global__ void grid_wide(int* a, int n) {
  cg::grid_group grid = cg::this_grid();
  const int i = static_cast<int>(grid.thread_rank());
  a[i] = i;
  for (int round = 0; round < 3; ++round) {
    grid.sync();
    const int next = a[(i + 1) % n];
    grid.sync();
    a[i] = next + 1;
  }
}

extern "C" __global__ void groups(int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  const int i = threadIdx.x;
  const int total = cg::reduce(tile, i, cg::plus<int>());
  const int before = cg::exclusive_scan(tile, i);
  int members = 0, rank = 0;
  if (i % 3 == 0) {
    cg::coalesced_group active = cg::coalesced_threads();
    members = active.size();
    rank = active.thread_rank();
    active.sync();
  }
  auto labeled = cg::labeled_partition(tile, i % 2);
  const int same = cg::reduce(labeled, 1, cg::plus<int>());
  out[i] = total * 1000000 + before * 10000 + members * 100 + rank * 10 + same;
}

// One lock that all threads of all blocks take.
__device__ int lock_word;
extern "C" __global__ void critical(int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(&lock_word, 0, 1) == 0) {
      *reinterpret_cast<volatile int*>(counter) += 1;
      __threadfence();
      atomicExch(&lock_word, 0);
      done = true;
    }
  }
}

// Blocks pass a number along in the order of their tickets.
__device__ unsigned ticket;
extern "C" __global__ void chain(volatile unsigned* values) {
  __shared__ unsigned mine;
  if (threadIdx.x == 0) {
    mine = atomicAdd(&ticket, 1u);
    if (mine > 0) {
      while (values[mine - 1] == 0) {
      }
    }
    values[mine] = (mine > 0 ? values[mine - 1] : 0) + mine + 1;
    __threadfence();
  }
}
