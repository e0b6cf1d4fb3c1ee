// Bulk copies between global and shared memory, of plain bytes and of boxes of tensors. A copy that
// a memory barrier waits for tells it at once.
#include <array>
#include <bit>
#include <cstring>

#include "sim/exec/bulk_op.h"
#include "sim/exec/mbarrier.h"
#include "sim/exec/memory.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/program_code.h"
#include "sim/exec/tensor_map.h"

namespace fargpu::sim {
namespace {

using ptx::Space;

constexpr unsigned kUnit = 16;   // of addresses and sizes
constexpr unsigned kLine = 128;  // of shared memory, where tensors' boxes begin

// The same place in the shared memory of block `rank` of the cluster.
uint64_t in_block(uint64_t address, uint32_t rank) {
  const uint64_t window = address >= kSharedWindow ? kSharedWindow : 0;
  return window + (uint64_t{rank} + 1) * kClusterStride + (address - window) % kClusterStride;
}

// Calls `copy` with the address to copy to and the barrier's, once or for each block that is asked
// for; then the barrier hears of `bytes`.
template <typename F>
bool each_target(Exec& x, const Instr& in, const BulkOp& op, uint32_t lane, uint64_t to,
                 uint32_t bytes, F copy) {
  const uint64_t barrier = op.barrier == kNoOperand ? 0 : x.at<uint64_t>(op.barrier)[lane];
  const auto one = [&](uint64_t target, uint64_t signal) {
    if (!copy(target)) return false;
    return op.barrier == kNoOperand ||
           complete_transaction(x, in, Space::kShared, signal, bytes, lane);
  };
  if (op.blocks == kNoOperand) return one(to, barrier);
  for (uint32_t left = x.at<uint16_t>(op.blocks)[lane]; left != 0; left &= left - 1) {
    const auto rank = static_cast<uint32_t>(std::countr_zero(left));
    if (!one(in_block(to, rank), in_block(barrier, rank))) return false;
  }
  return true;
}

bool copy_bytes(Exec& x, const Instr& in, const BulkOp& op, uint32_t lane) {
  const uint32_t bytes = x.at<uint32_t>(op.bytes)[lane];
  if (bytes % kUnit != 0) {
    raise_fault(x, in, Fault::Kind::kIllegalInstruction, lane, 0, bytes,
                "the size of a bulk copy is a multiple of 16");
    return false;
  }
  const uint8_t* from = nullptr;
  if (bytes != 0) {
    from = resolve_range(x, in, op.from_space, x.at<uint64_t>(op.from)[lane], bytes, kUnit, false,
                         lane);
    if (from == nullptr) return false;
  }
  return each_target(x, in, op, lane, x.at<uint64_t>(op.to)[lane], bytes, [&](uint64_t to) {
    if (bytes == 0) return true;
    uint8_t* target = resolve_range(x, in, op.to_space, to, bytes, kUnit, true, lane);
    if (target != nullptr) std::memmove(target, from, bytes);
    return target != nullptr;
  });
}

// One box of a tensor: where it lies, and how much of it there is.
struct Box {
  TensorMap map;
  std::array<int64_t, TensorMap::kMostRank> begin{};
  std::array<uint32_t, TensorMap::kMostRank> count{};
  uint32_t bytes = 0;
};

// Kernels can write what looks like a map: it is as little trusted as an address.
bool is_map(const TensorMap& map, unsigned rank) {
  bool right = map.mark == TensorMap::kMark && map.rank == rank && map.swizzle_bits <= 3 &&
               map.element_bytes <= 8 && std::has_single_bit(map.element_bytes);
  for (unsigned d = 0; d < rank; ++d)
    right &= map.step[d] != 0 && map.box[d] != 0 && map.box[d] <= TensorMap::kMostBox;
  return right;
}

bool read_box(Exec& x, const Instr& in, const BulkOp& op, uint32_t lane, uint64_t map, Box& box) {
  const uint8_t* place =
      resolve_range(x, in, Space::kGeneric, map, sizeof box.map, 64, false, lane);
  if (place == nullptr) return false;
  std::memcpy(&box.map, place, sizeof box.map);
  if (!is_map(box.map, op.rank)) {
    raise_fault(x, in, Fault::Kind::kIllegalInstruction, lane, map, sizeof box.map,
                "not a tensor map of this rank");
    return false;
  }
  uint64_t bytes = box.map.element_bytes;
  for (unsigned d = 0; d < op.rank; ++d) {
    box.begin[d] = static_cast<int32_t>(x.at<uint32_t>(op.coordinates[d])[lane]);
    box.count[d] = (box.map.box[d] + box.map.step[d] - 1u) / box.map.step[d];
    bytes *= box.count[d];
  }
  if (bytes > x.grid->shared_bytes) {
    raise_fault(x, in, Fault::Kind::kIllegalAddress, lane, map, bytes,
                "the box is bigger than shared memory");
    return false;
  }
  box.bytes = static_cast<uint32_t>(bytes);
  return true;
}

// Where the address's bits say that the bytes lie.
uint64_t swizzled(const TensorMap& map, uint64_t address) {
  const uint64_t mask = (uint64_t{1} << map.swizzle_bits) - 1;
  return address ^ (address >> 7 & mask) << 4;
}

// `tile`: the box in shared memory, element after element, which begins at address `at`.
bool copy_box(Exec& x, const Instr& in, const Box& box, uint32_t lane, uint8_t* tile, uint64_t at,
              bool to_shared) {
  const TensorMap& map = box.map;
  const uint32_t size = map.element_bytes;
  std::array<uint32_t, TensorMap::kMostRank> index{};
  for (uint64_t offset = 0; offset < box.bytes; offset += size) {
    uint64_t address = map.address;
    bool inside = true;
    for (unsigned d = 0; d < map.rank; ++d) {
      const int64_t place = box.begin[d] + int64_t{index[d]} * map.step[d];
      inside &= place >= 0 && place <= int64_t{map.size[d]};
      address += static_cast<uint64_t>(place) * map.strides[d];
    }
    uint8_t* shared = tile + (swizzled(map, at + offset) - at);
    if (inside) {
      uint8_t* global = resolve_lane(x, in, Space::kGlobal, address, size, !to_shared, lane);
      if (global == nullptr) return false;
      std::memcpy(to_shared ? shared : global, to_shared ? global : shared, size);
    } else if (to_shared) {
      std::memset(shared, map.fill, size);
    }
    for (unsigned d = 0; d < map.rank && ++index[d] == box.count[d]; ++d) index[d] = 0;
  }
  return true;
}

bool copy_tensor(Exec& x, const Instr& in, const BulkOp& op, uint32_t lane) {
  const bool to_shared = op.to_space == Space::kShared;
  Box box;
  const uint64_t map = x.at<uint64_t>(to_shared ? op.from : op.to)[lane];
  if (!read_box(x, in, op, lane, map, box)) return false;
  const auto copy = [&](uint64_t shared) {
    // A swizzle keeps bytes within their line of 128.
    const unsigned reach =
        box.map.swizzle_bits == 0 ? box.bytes : (box.bytes + kLine - 1) / kLine * kLine;
    uint8_t* tile = resolve_range(x, in, Space::kShared, shared, reach, kLine, to_shared, lane);
    return tile != nullptr && copy_box(x, in, box, lane, tile, shared % kClusterStride, to_shared);
  };
  if (!to_shared) return copy(x.at<uint64_t>(op.from)[lane]);
  return each_target(x, in, op, lane, x.at<uint64_t>(op.to)[lane], box.bytes, copy);
}

void bulk(Exec& x, const Instr& in) {
  const BulkOp& op = x.grid->program->bulk_ops[in.imm];
  for (uint32_t left = x.mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    if (!(op.rank == 0 ? copy_bytes(x, in, op, lane) : copy_tensor(x, in, op, lane))) return;
  }
}

}  // namespace

void add_bulk_ops(OpTable& table) { table.add("bulk", bulk); }

}  // namespace fargpu::sim
