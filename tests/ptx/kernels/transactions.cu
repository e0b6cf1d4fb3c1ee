// Barriers in shared memory and copies that signal them, by the C++ interface. Real compilers make
// the PTX.
#include <cuda/barrier>

#pragma nv_diag_suppress static_var_with_dynamic_init

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

// One warp makes what the others use, in two buffers by turns.
extern "C" __global__ void producer(const int* in, int* out, int rounds) {
  __shared__ int buffer[2][32];
  __shared__ Barrier ready[2], filled[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) init(ready + i, blockDim.x), init(filled + i, blockDim.x);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int round = 0; round < rounds; ++round) {
      ready[round % 2].arrive_and_wait();
      buffer[round % 2][threadIdx.x] = in[round * 32 + threadIdx.x] * 3;
      (void)filled[round % 2].arrive();
    }
    return;
  }
  (void)ready[0].arrive();
  (void)ready[1].arrive();
  for (int round = 0; round < rounds; ++round) {
    filled[round % 2].arrive_and_wait();
    atomicAdd(out + round, buffer[round % 2][threadIdx.x % 32] + static_cast<int>(threadIdx.x));
    (void)ready[round % 2].arrive();
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Into shared memory and out again by bulk copies; each element is doubled in between.
extern "C" __global__ void bulk(const int* in, int* out) {
  __shared__ alignas(128) int tile[256];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_global_to_shared(tile, in + blockIdx.x * 256, sizeof tile, barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(std::move(token));
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) tile[i] *= 2;
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    cde::cp_async_bulk_shared_to_global(out + blockIdx.x * 256, tile, sizeof tile);
    cde::cp_async_bulk_commit_group();
    cde::cp_async_bulk_wait_group_read<0>();
  }
}

#endif

// Each thread copies some elements; the barrier completes when all copies are there.
extern "C" __global__ void threads_copy(const int4* in, int4* out) {
  __shared__ int4 tile[128];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(tile + threadIdx.x, in + threadIdx.x, cuda::aligned_size_t<16>(16), barrier);
  barrier.arrive_and_wait();
  out[threadIdx.x] = tile[127 - threadIdx.x];
}
