// Distributes blocks over threads. A worker takes the next block and runs it to its end. A block
// that spins, waiting for other blocks, is suspended so that those can run, and resumed later.
#include <algorithm>
#include <bit>
#include <deque>

#include "sim/exec/program.h"
#include "sim/exec/scheduler.h"

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
  fill(area, kDynamicBase,
       grid.shared_bytes - static_cast<uint32_t>(grid.config.dynamic_shared_bytes));
  return block;
}

void start_block(const Grid& grid, Block& block, uint64_t linear) {
  const auto& size = grid.config.grid;
  block.linear = linear;
  block.index = {static_cast<uint32_t>(linear % size[0]),
                 static_cast<uint32_t>(linear / size[0] % size[1]),
                 static_cast<uint32_t>(linear / size[0] / size[1])};
  for (uint32_t i = 0; i < 3; ++i) fill(block.specials, kCtaidX + i, block.index[i]);
  fill(block.specials, kSmid, static_cast<uint32_t>(linear % grid.sm_count));
  block.barriers = {};
  block.live = block.threads;
  for (size_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = *block.warps[w];
    const uint32_t lanes = std::min(block.threads - static_cast<uint32_t>(w) * kLanes, kLanes);
    warp.live = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warp.waiting.clear();
    warp.joins.clear();
    warp.free_joins.clear();
    warp.ready.assign(1, Path{.mask = warp.live, .pc = grid.kernel->entry});
  }
}

class GridRun {
 public:
  explicit GridRun(Grid& grid) : grid_(grid) {}

  void work() {
    Exec x;
    x.grid = &grid_;
    x.ranges.reset(grid_.memory);
    std::unique_ptr<Block> spare;
    while (!grid_.stop.load(std::memory_order_acquire)) {
      std::unique_ptr<Block> block = next(spare);
      if (!block) return;
      WarpResult result = WarpResult::kYielded;
      do {  // a long block continues; one that waits for others is suspended
        result = run_block(x, *block);
      } while (result == WarpResult::kYielded && !x.spun &&
               !grid_.stop.load(std::memory_order_relaxed));
      const std::lock_guard lock(mutex_);
      if (result == WarpResult::kYielded) {
        parked_.push_back(std::move(block));
      } else {
        --resident_;
        spare = std::move(block);
      }
    }
  }

 private:
  // A new block while there are some and the limit allows, else a suspended one. Null: nothing is
  // left to begin.
  std::unique_ptr<Block> next(std::unique_ptr<Block>& spare) {
    std::unique_lock lock(mutex_);
    const bool fresh = next_ < grid_.block_count &&
                       (grid_.config.cooperative || resident_ < kBlocksPerSm * grid_.sm_count);
    if (!fresh) {
      if (parked_.empty()) return nullptr;
      std::unique_ptr<Block> block = std::move(parked_.front());
      parked_.pop_front();
      return block;
    }
    const uint64_t linear = next_++;
    ++resident_;
    lock.unlock();
    std::unique_ptr<Block> block = spare ? std::move(spare) : make_block(grid_);
    if (!block) {
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
    start_block(grid_, *block, linear);
    return block;
  }

  Grid& grid_;
  std::mutex mutex_;  // guards everything below
  uint64_t next_ = 0, resident_ = 0;
  std::deque<std::unique_ptr<Block>> parked_;
};

}  // namespace

void run_grid(Grid& grid, WorkerPool& pool, unsigned workers) {
  GridRun run(grid);
  const auto helpers = static_cast<unsigned>(std::min<uint64_t>(workers, grid.block_count) - 1);
  pool.run(helpers, [&run] { run.work(); });
}

}  // namespace fargpu::sim
