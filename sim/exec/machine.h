// State of a running grid: blocks, warps, their divergent paths, and the context that instruction
// handlers work on.
//
// Divergence: a warp holds disjoint paths (a lane mask with its own program counter). A divergent
// branch makes a Join for its reconvergence point; paths that arrive there wait and continue as one
// when all expected lanes are there or gone. A join is broken (the arrived lanes go on alone) when
// no other lane of the warp can run, or when the others spin: that gives each lane the forward
// progress that programs with locks between lanes rely on. Registers are columns per lane, so paths
// of one warp share one register stack without conflict, at any call depth.
//
// Threads: a block, its warps and an Exec belong to one worker thread at a time. Grid is shared.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/exec/engine.h"
#include "sim/exec/instr.h"

namespace fargpu::sim {

struct ProgramCode;
struct FunctionCode;
class DeviceHeap;

// Windows of the generic address space that are not global memory. Above the addresses of user
// space, within 48 bits.
inline constexpr uint64_t kSharedWindow = 0x8000'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x8100'0000'0000;
inline constexpr uint64_t kParamWindow = 0x8200'0000'0000;
inline constexpr uint64_t kFunctionWindow = 0x8300'0000'0000;  // + 16 * index
inline constexpr uint64_t kWindowBytes = 0x0100'0000'0000;
// Shared memory of block `rank` of the cluster, seen from all of its blocks, begins at
// (rank + 1) * kClusterStride of the shared window; a block's own begins at 0 as well.
inline constexpr uint64_t kClusterStride = 1u << 24;

// Zeroed memory aligned for vectors; grows only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  // At least `bytes`; contents are kept. False: out of memory.
  bool reserve(size_t bytes);
  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void drop();
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

struct CallSite {
  struct Copy {
    uint32_t offset = 0, bytes = 0;  // in the caller's local frame
  };
  std::vector<Copy> arguments, returns;
  uint32_t frame_bytes = 0, local_bytes = 0;  // of the caller: where the callee's frames begin
};

struct Join {
  uint32_t pc = 0, frame = 0, local = 0;
  uint32_t expected = 0, arrived = 0;
  int32_t parent = -1;
  const CallSite* site = nullptr;  // the join of a call: lanes arrive by ret
};

enum class PathState : uint8_t { kReady, kBarrier, kWarpSync, kClusterBarrier };

struct Path {
  uint32_t mask = 0, pc = 0;
  uint32_t frame = 0, local = 0;  // bytes into the register stack and into each lane's local memory
  int32_t join = -1;
  PathState state = PathState::kReady;
  uint8_t barrier = 0;
};

struct Warp {
  uint32_t index = 0;
  uint32_t live = 0;                // lanes that have not exited
  uint32_t at_cluster_barrier = 0;  // lanes that have arrived there
  std::vector<Path> ready, waiting;
  std::vector<Join> joins;
  std::vector<int32_t> free_joins;
  AlignedBuffer registers;
  AlignedBuffer specials;  // kWarpArea
};

struct Barrier {
  uint32_t arrived = 0;
  uint32_t expected = 0;  // threads; 0: all of the block
  uint32_t popc = 0;
  bool all = true, any = false;
  bool in_use = false;
};

struct Grid;
struct Cluster;

struct Block {
  std::array<uint32_t, 3> index{};
  uint32_t threads = 0, live = 0;
  uint32_t next_warp = 0;
  std::vector<std::unique_ptr<Warp>> warps;
  size_t warp_count = 0;
  std::array<Barrier, 16> barriers;
  AlignedBuffer shared, locals, specials;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
};

// Blocks that run in turn on one worker, so that they can wait for each other.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  bool barrier_in_use = false;
};

enum class Event : uint8_t {
  kNone,
  kEnded,  // the path's lanes have left it: joined, blocked or exited
  kYield,  // the slice is over
  kFault,
};

// Remembers which allocations this worker touched last. Valid for one grid.
class RangeCache {
 public:
  void reset(const MemoryMap* map) {
    map_ = map;
    ranges_ = {};
  }
  // The allocation around [address, address + bytes), or null.
  const MemoryMap::Range* find(uint64_t address, size_t bytes);

 private:
  static constexpr size_t kEntries = 8;
  const MemoryMap* map_ = nullptr;
  std::array<MemoryMap::Range, kEntries> ranges_{};
  size_t last_ = 0, victim_ = 0;
};

// The object that this worker used last. Valid for one grid.
template <typename Object>
struct ObjectCache {
  uint64_t value = 0;  // its name in kernels
  std::shared_ptr<const Object> object;
};

// The view of a handler. `mask` are the lanes that execute the instruction.
struct Exec {
  uint8_t* bases[4] = {};
  uint32_t mask = 0;
  Event event = Event::kNone;
  Path path;  // the running path; pc is already the next instruction's
  int64_t budget = 0;
  uint32_t spins = 0;
  bool spun = false;  // a slice of the block ended because of spinning
  bool ran = false;   // something of the block could run
  Warp* warp = nullptr;
  Block* block = nullptr;
  Grid* grid = nullptr;
  RangeCache ranges;
  ObjectCache<Texture> texture;
  ObjectCache<Surface> surface;
  std::string print_buffer;
  alignas(64) uint8_t scratch[128] = {};  // where inactive lanes load from and store to

  template <typename T>
  [[gnu::always_inline]] T* at(OperandRef ref) const {
    return reinterpret_cast<T*>(bases[ref & 3] + (ref & ~uint32_t{3}));
  }
  [[gnu::always_inline]] uint32_t predicate(OperandRef ref, bool inverted) const {
    const uint32_t bits = *at<uint32_t>(ref);
    return inverted ? ~bits : bits;
  }
  [[gnu::always_inline]] void set_predicate(OperandRef ref, uint32_t bits) {
    uint32_t* word = at<uint32_t>(ref);
    *word = (*word & ~mask) | (bits & mask);
  }
};

struct Grid {
  const ProgramCode* program = nullptr;
  const FunctionCode* kernel = nullptr;
  GridConfig config;
  std::span<const std::byte> parameters;
  const std::function<void(std::string_view)>* output = nullptr;
  MemoryMap* memory = nullptr;
  DeviceHeap* heap = nullptr;
  uint32_t sm_count = 1;
  uint64_t id = 0;
  uint64_t workspace = 0;  // of a cooperative grid
  uint32_t shared_bytes = 0, static_shared_bytes = 0, local_bytes = 0;
  uint64_t block_count = 0;
  uint32_t cluster_blocks = 1;  // config.cluster has them, even where none was asked for
  bool explicit_cluster = false;

  std::mutex mutex;  // guards fault and calls of output
  std::optional<Fault> fault;
  std::atomic<bool> stop{false};  // pairs with fault: set after it
};

// Ends the grid with a fault of `lane` at the running instruction.
void raise_fault(Exec& x, const Instr& in, Fault::Kind kind, uint32_t lane, uint64_t address,
                 size_t bytes, std::string_view note = {});

}  // namespace fargpu::sim
