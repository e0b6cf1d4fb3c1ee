// Distributes clusters (mostly: single blocks) over threads. A worker takes the next one and runs
// it to its end. One that spins, waiting for others, is suspended so that those can run, and is
// resumed later.
#include <algorithm>
#include <bit>
#include <deque>

#include "sim/exec/ops/scheduler.h"
#include "sim/exec/run/program.h"

namespace fargpu::sim {
namespace {

// Blocks that may be in progress at once when they wait for each other, unless the grid is
// cooperative: what a GPU of this size would hold.
constexpr uint64_t kBlocksPerSm = 32;

void fill(AlignedBuffer& area, uint32_t index, uint32_t value) {
  auto* lanes = reinterpret_cast<uint32_t*>(area.data() + size_t{index} * kValueBytes);
  std::fill(lanes, lanes + kLanes, value);
}

// Memory of a block and everything that is the same for all blocks of a grid.
std::unique_ptr<Block> make_block(const Grid& grid) {
  auto block = std::make_unique<Block>();
  const auto& size = grid.config.block;
  block->threads = size[0] * size[1] * size[2];
  block->warp_count = (block->threads + kLanes - 1) / kLanes;
  bool ok = block->specials.reserve(kBlockValueCount * kValueBytes) &&
            block->shared.reserve(grid.shared_bytes + 16) &&
            block->locals.reserve(block->warp_count * kLanes * size_t{grid.local_bytes} + 16);
  for (uint32_t w = 0; ok && w < block->warp_count; ++w) {
    auto warp = std::make_unique<Warp>();
    warp->index = w;
    ok = warp->specials.reserve(kWarpValueCount * kValueBytes) &&
         warp->registers.reserve(std::max<size_t>(grid.kernel->frame_bytes, 64));
    if (!ok) break;
    auto* values = reinterpret_cast<uint32_t*>(warp->specials.data());
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t thread = w * kLanes + l;
      values[kTidX * kLanes + l] = thread % size[0];
      values[kTidY * kLanes + l] = thread / size[0] % size[1];
      values[kTidZ * kLanes + l] = thread / size[0] / size[1];
      values[kWarpId * kLanes + l] = w;
      values[kLaneId * kLanes + l] = l;
    }
    block->warps.push_back(std::move(warp));
  }
  if (!ok) return nullptr;
  AlignedBuffer& area = block->specials;
  for (uint32_t i = 0; i < 3; ++i) {
    fill(area, kNtidX + i, size[i]);
    fill(area, kNctaidX + i, grid.config.grid[i]);
  }
  fill(area, kNwarpId, static_cast<uint32_t>(block->warp_count));
  fill(area, kNsmid, grid.sm_count);
  fill(area, kGridIdLow, static_cast<uint32_t>(grid.id));
  fill(area, kDynamicShared, static_cast<uint32_t>(grid.config.dynamic_shared_bytes));
  fill(area, kTotalShared, grid.shared_bytes);
  fill(area, kEnvreg1, static_cast<uint32_t>(grid.workspace >> 32));
  fill(area, kEnvreg2, static_cast<uint32_t>(grid.workspace));
  fill(area, kClusterBlocks, grid.cluster_blocks);
  fill(area, kExplicitCluster, grid.explicit_cluster ? kAllLanes : 0);
  auto* current = reinterpret_cast<uint64_t*>(area.data() + size_t{kCurrentGraph} * kValueBytes);
  std::fill(current, current + kLanes,
            grid.config.graphs != nullptr ? grid.config.graphs->current() : 0);
  fill(area, kDynamicBase,
       grid.shared_bytes - static_cast<uint32_t>(grid.config.dynamic_shared_bytes));
  return block;
}

std::array<uint32_t, 3> place_in(const std::array<uint32_t, 3>& size, uint64_t linear) {
  return {static_cast<uint32_t>(linear % size[0]),
          static_cast<uint32_t>(linear / size[0] % size[1]),
          static_cast<uint32_t>(linear / size[0] / size[1])};
}

void start_block(const Grid& grid, Block& block, uint64_t cluster) {
  const auto &grid_size = grid.config.grid, &size = grid.config.cluster;
  const std::array<uint32_t, 3> clusters = {grid_size[0] / size[0], grid_size[1] / size[1],
                                            grid_size[2] / size[2]};
  const auto of_grid = place_in(clusters, cluster), of_cluster = place_in(size, block.rank);
  for (uint32_t i = 0; i < 3; ++i) {
    block.index[i] = of_grid[i] * size[i] + of_cluster[i];
    fill(block.specials, kCtaidX + i, block.index[i]);
    fill(block.specials, kClusterIdX + i, of_grid[i]);
    fill(block.specials, kNclusterIdX + i, clusters[i]);
    fill(block.specials, kClusterCtaidX + i, of_cluster[i]);
    fill(block.specials, kClusterNctaidX + i, size[i]);
  }
  const uint64_t linear =
      block.index[0] + grid_size[0] * (block.index[1] + uint64_t{grid_size[1]} * block.index[2]);
  fill(block.specials, kSmid, static_cast<uint32_t>(linear % grid.sm_count));
  block.barriers = {};
  block.live = block.threads;
  for (size_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = *block.warps[w];
    const uint32_t lanes = std::min(block.threads - static_cast<uint32_t>(w) * kLanes, kLanes);
    warp.at_cluster_barrier = 0;
    warp.live = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warp.waiting.clear();
    warp.joins.clear();
    warp.free_joins.clear();
    warp.ready.assign(1, Path{.mask = warp.live, .pc = grid.kernel->entry});
  }
}

std::unique_ptr<Cluster> make_cluster(const Grid& grid) {
  auto cluster = std::make_unique<Cluster>();
  for (uint32_t rank = 0; rank < grid.cluster_blocks; ++rank) {
    std::unique_ptr<Block> block = make_block(grid);
    if (!block) return nullptr;
    block->cluster = cluster.get();
    block->rank = rank;
    fill(block->specials, kClusterRank, rank);
    cluster->blocks.push_back(std::move(block));
  }
  return cluster;
}

class GridRun {
 public:
  explicit GridRun(Grid& grid) : grid_(grid) {}

  void work() {
    Exec x;
    x.grid = &grid_;
    x.ranges.reset(grid_.memory);
    std::unique_ptr<Cluster> spare;
    while (!grid_.stop.load(std::memory_order_acquire)) {
      std::unique_ptr<Cluster> cluster = next(spare);
      if (!cluster) return;
      WarpResult result = WarpResult::kYielded;
      do {  // a long cluster continues; one that waits for others is suspended
        result = run_cluster(x, *cluster);
      } while (result == WarpResult::kYielded && !x.spun &&
               !grid_.stop.load(std::memory_order_relaxed));
      const std::lock_guard lock(mutex_);
      if (result == WarpResult::kYielded) {
        parked_.push_back(std::move(cluster));
      } else {
        resident_ -= grid_.cluster_blocks;
        spare = std::move(cluster);
      }
    }
  }

 private:
  // A new cluster while there are some and the limit allows, else a suspended one. Null: nothing is
  // left to begin.
  std::unique_ptr<Cluster> next(std::unique_ptr<Cluster>& spare) {
    std::unique_lock lock(mutex_);
    const bool fresh = next_ < grid_.block_count / grid_.cluster_blocks &&
                       (grid_.config.cooperative || resident_ < kBlocksPerSm * grid_.sm_count);
    if (!fresh) {
      if (parked_.empty()) return nullptr;
      std::unique_ptr<Cluster> cluster = std::move(parked_.front());
      parked_.pop_front();
      return cluster;
    }
    const uint64_t linear = next_++;
    resident_ += grid_.cluster_blocks;
    lock.unlock();
    std::unique_ptr<Cluster> cluster = spare ? std::move(spare) : make_cluster(grid_);
    if (!cluster) {
      const std::lock_guard guard(grid_.mutex);
      if (!grid_.fault) {
        grid_.fault =
            Fault{.kind = Fault::Kind::kStackOverflow,
                  .kernel = grid_.kernel->name,
                  .text = "no host memory left for a block of kernel " + grid_.kernel->name};
      }
      grid_.stop.store(true, std::memory_order_release);
      return nullptr;
    }
    cluster->barrier_in_use = false;
    for (auto& block : cluster->blocks) start_block(grid_, *block, linear);
    return cluster;
  }

  Grid& grid_;
  std::mutex mutex_;  // guards everything below
  uint64_t next_ = 0, resident_ = 0;
  std::deque<std::unique_ptr<Cluster>> parked_;
};

}  // namespace

void run_grid(Grid& grid, WorkerPool& pool, unsigned workers) {
  GridRun run(grid);
  const auto helpers = static_cast<unsigned>(
      std::min<uint64_t>(workers, grid.block_count / grid.cluster_blocks) - 1);
  pool.run(helpers, [&run] { run.work(); });
}

}  // namespace fargpu::sim
