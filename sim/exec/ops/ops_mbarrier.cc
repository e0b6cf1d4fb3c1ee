// Memory barriers. Waiting is a loop of the program around a test; a test that says "not yet" makes
// the warp give way to others at the loop's branch.
#include <bit>
#include <cstring>

#include "sim/exec/mbarrier.h"
#include "sim/exec/memory.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/ops/scheduler.h"

namespace fargpu::sim {
namespace {

// Calls `change` with the barrier at `address` and puts it back.
template <typename F>
bool with_barrier(Exec& x, const Instr& in, ptx::Space space, uint64_t address, uint32_t lane,
                  F change) {
  uint8_t* place = resolve_lane(x, in, space, address, 8, true, lane);
  if (place == nullptr) return false;
  uint64_t word = 0;
  std::memcpy(&word, place, 8);
  MemoryBarrier barrier = MemoryBarrier::from(word);
  const bool right = change(barrier, word);
  if (!right) {
    raise_fault(x, in, Fault::Kind::kIllegalInstruction, lane, address, 8,
                "the memory barrier does not expect this");
    return false;
  }
  word = barrier.word();
  std::memcpy(place, &word, 8);
  return true;
}

bool arrive(MemoryBarrier& barrier, uint32_t count, uint64_t flags) {
  if ((flags & kAnnounces) != 0) {
    if (!barrier.add_bytes(count)) return false;
    count = 1;
  }
  if ((flags & kAdds) != 0) ++barrier.pending;
  if (count == 0 || count > barrier.pending) return false;
  barrier.pending -= count;
  if ((flags & kDrop) != 0) {
    if (count > barrier.expected) return false;
    barrier.expected -= count;
  }
  barrier.finish_phase();
  return true;
}

bool finished(MemoryBarrier& barrier, uint32_t bytes) {
  if (!barrier.add_bytes(-int64_t{bytes})) return false;
  barrier.finish_phase();
  return true;
}

void memory_barrier(Exec& x, const Instr& in) {
  const auto op = static_cast<MemoryBarrierOp>(in.sub);
  uint32_t passed = 0;
  for (uint32_t left = x.mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const bool right = with_barrier(
        x, in, static_cast<ptx::Space>(in.space), x.at<uint64_t>(in.a)[lane], lane,
        [&](MemoryBarrier& barrier, uint64_t word) {
          const uint32_t count =
              in.b == kNoOperand || op == MemoryBarrierOp::kTest ? 1 : x.at<uint32_t>(in.b)[lane];
          switch (op) {
            case MemoryBarrierOp::kInit:
              barrier = MemoryBarrier::expecting(count);
              return count != 0 && count <= MemoryBarrier::kMostArrivals;
            case MemoryBarrierOp::kInvalidate:
              barrier = MemoryBarrier::expecting(0);
              return true;
            case MemoryBarrierOp::kArrive:
              if (in.dst != kNoOperand) x.at<uint64_t>(in.dst)[lane] = word;
              return arrive(barrier, count, in.imm);
            case MemoryBarrierOp::kExpect:
              return barrier.add_bytes(count);
            case MemoryBarrierOp::kComplete:
              return finished(barrier, count);
            case MemoryBarrierOp::kTest: {
              const MemoryBarrier seen = MemoryBarrier::from(x.at<uint64_t>(in.b)[lane]);
              passed |= uint32_t{seen.phase != barrier.phase} << lane;
              return true;
            }
            case MemoryBarrierOp::kTestParity:
              passed |= uint32_t{(barrier.phase & 1u) != (count & 1u)} << lane;
              return true;
          }
          return false;
        });
    if (!right) return;
  }
  if (op != MemoryBarrierOp::kTest && op != MemoryBarrierOp::kTestParity) return;
  x.set_predicate(in.dst, passed);
  if (passed != x.mask) x.spins = kSpinLimit;
}

// d: the pending arrivals of state a.
void pending_count(Exec& x, const Instr& in) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    x.at<uint32_t>(in.dst)[l] = MemoryBarrier::from(x.at<uint64_t>(in.a)[l]).pending;
  }
}

}  // namespace

bool complete_transaction(Exec& x, const Instr& in, ptx::Space space, uint64_t address,
                          uint32_t bytes, uint32_t lane) {
  return with_barrier(x, in, space, address, lane,
                      [&](MemoryBarrier& barrier, uint64_t) { return finished(barrier, bytes); });
}

void add_memory_barrier_ops(OpTable& table) {
  table.add("mbarrier", memory_barrier);
  table.add("mbarrier.pending_count", pending_count);
}

}  // namespace fargpu::sim
