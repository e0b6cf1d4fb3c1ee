// What blocks of a cluster know of each other: addresses, and the cluster's barrier.
#include <bit>

#include "sim/exec/ops/ops.h"
#include "sim/exec/ops/scheduler.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim {
namespace {

// in.imm: what the result's window is. b: the rank.
template <typename T>
void map_address(Exec& x, const Instr& in) {
  const T* a = x.at<T>(in.a);
  const uint32_t* rank = x.at<uint32_t>(in.b);
  T* d = x.at<T>(in.dst);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    d[l] =
        static_cast<T>(in.imm + (uint64_t{rank[l]} + 1) * kClusterStride + a[l] % kClusterStride);
  }
}

template <typename T>
void rank_of_address(Exec& x, const Instr& in) {
  const T* a = x.at<T>(in.a);
  uint32_t* d = x.at<uint32_t>(in.dst);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const auto part = static_cast<uint32_t>((a[l] & (kWindowBytes - 1)) / kClusterStride);
    d[l] = part == 0 ? x.block->rank : part - 1;
  }
}

void arrive(Exec& x, const Instr& in) {
  if ((x.warp->at_cluster_barrier & x.mask) != 0) {
    return raise_fault(x, in, Fault::Kind::kIllegalInstruction,
                       static_cast<uint32_t>(std::countr_zero(x.warp->at_cluster_barrier & x.mask)),
                       0, 0, "the thread has arrived already");
  }
  x.warp->at_cluster_barrier |= x.mask;
  x.block->cluster->barrier_in_use = true;
  complete_cluster_barrier(*x.block->cluster);
}

// Lanes whose arrival counts for a barrier that is complete go on.
void wait(Exec& x, const Instr& in) {
  const uint32_t early = x.mask & x.warp->at_cluster_barrier;
  if (early != 0) block_lanes(x, early, PathState::kClusterBarrier, 0);
}

}  // namespace

void add_cluster_ops(OpTable& table) {
  table.add("mapa.32", map_address<uint32_t>);
  table.add("mapa.64", map_address<uint64_t>);
  table.add("getctarank.32", rank_of_address<uint32_t>);
  table.add("getctarank.64", rank_of_address<uint64_t>);
  table.add("cluster.arrive", arrive);
  table.add("cluster.wait", wait);
}

}  // namespace fargpu::sim
