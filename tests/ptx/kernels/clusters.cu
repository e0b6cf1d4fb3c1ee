// Clusters of blocks: their shape, shared memory of other blocks, and the cluster's barrier. Real
// compilers make the PTX.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Each block adds up what the blocks of its cluster hold; in turns, so that barriers count.
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(int* out) {
  __shared__ int value[32];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
  value[threadIdx.x] = static_cast<int>(blockIdx.x * 1000 + threadIdx.x);
  for (unsigned turn = 0; turn < 3; ++turn) {
    cluster.sync();
    const int* next = cluster.map_shared_rank(value, (rank + 1) % size);
    const int got = next[threadIdx.x];
    cluster.sync();
    value[threadIdx.x] = got;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value[threadIdx.x];
  cluster.sync();
}

// A histogram whose bins are spread over the blocks of the cluster, whatever its size.
extern "C" __global__ void histogram(const unsigned char* data, int count, unsigned* bins) {
  extern __shared__ unsigned mine[];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned size = cluster.num_blocks(), part = 256 / size;
  for (unsigned i = threadIdx.x; i < part; i += blockDim.x) mine[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned* of = cluster.map_shared_rank(mine, data[i] / part);
    atomicAdd(of + data[i] % part, 1u);
  }
  cluster.sync();
  for (unsigned i = threadIdx.x; i < part; i += blockDim.x)
    atomicAdd(bins + cluster.block_rank() * part + i, mine[i]);
}

struct Shape {
  uint3 block, cluster_block, cluster_blocks, clusters, cluster;
  unsigned rank, of_pointer;
};
extern "C" __global__ void shape(Shape* out) {
  __shared__ int something;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned last = cluster.num_blocks() - 1;
  Shape s;
  s.block = blockIdx;
  s.cluster_block =
      make_uint3(cluster.block_index().x, cluster.block_index().y, cluster.block_index().z);
  s.cluster_blocks =
      make_uint3(cluster.dim_blocks().x, cluster.dim_blocks().y, cluster.dim_blocks().z);
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(s.clusters.x));
  asm("mov.u32 %0, %%nclusterid.y;" : "=r"(s.clusters.y));
  asm("mov.u32 %0, %%nclusterid.z;" : "=r"(s.clusters.z));
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(s.cluster.x));
  asm("mov.u32 %0, %%clusterid.y;" : "=r"(s.cluster.y));
  asm("mov.u32 %0, %%clusterid.z;" : "=r"(s.cluster.z));
  s.rank = cluster.block_rank();
  s.of_pointer = cluster.query_shared_rank(cluster.map_shared_rank(&something, last));
  out[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)] = s;
}
