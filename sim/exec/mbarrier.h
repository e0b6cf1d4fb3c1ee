// Memory barriers in shared memory (mbarrier). A barrier's 64 bits, which programs do not look
// into, hold the arrivals expected in a phase, those still pending, the bytes of transactions
// under way, and the phase. Blocks that see one barrier run on one thread: nothing here is atomic.
#pragma once

#include <cstdint>

#include "sim/exec/instr.h"
#include "sim/ptx/types.h"

namespace fargpu::sim {

class MemoryBarrier {
 public:
  static constexpr uint64_t kMostArrivals = (1u << 20) - 1;
  static constexpr int64_t kMostBytes = (1 << 20) - 1;

  static MemoryBarrier expecting(uint32_t arrivals) { return {arrivals, arrivals, 0, 0}; }
  static MemoryBarrier from(uint64_t word) {
    return {static_cast<uint32_t>(word & kMostArrivals),
            static_cast<uint32_t>(word >> 20 & kMostArrivals),
            static_cast<int32_t>(static_cast<int64_t>(word << 3) >> 43),
            static_cast<uint32_t>(word >> 61)};
  }
  uint64_t word() const {
    return expected | uint64_t{pending} << 20 | (static_cast<uint64_t>(bytes) & 0x1fffff) << 40 |
           uint64_t{phase & 7u} << 61;
  }
  // More bytes under way, or fewer. False: more than a barrier counts.
  bool add_bytes(int64_t more) {
    const int64_t sum = bytes + more;
    if (sum > kMostBytes || sum < -kMostBytes) return false;
    bytes = static_cast<int32_t>(sum);
    return true;
  }
  // The phase ends when no arrivals and no bytes are pending.
  void finish_phase() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = expected;
  }

  uint32_t expected, pending;
  int32_t bytes;  // below zero while copies are ahead of their announcements
  uint32_t phase;

 private:
  MemoryBarrier(uint32_t e, uint32_t p, int32_t b, uint32_t f)
      : expected(e), pending(p), bytes(b), phase(f) {}
};

// Instr::sub of "mbarrier". a: the address; b: the waited-for value, state or parity; dst: the
// state, or a predicate. imm: the flags below.
enum class MemoryBarrierOp : uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kExpect,
  kComplete,
  kTest,
  kTestParity,
};
inline constexpr uint64_t kDrop = 1;       // kArrive: later phases expect fewer, too
inline constexpr uint64_t kAnnounces = 2;  // kArrive: b are bytes of transactions; one arrival
inline constexpr uint64_t kAdds = 4;       // kArrive: the arrival is expected only now

// `bytes` of a transaction of the barrier at `address` are done. False after a fault.
bool complete_transaction(Exec& x, const Instr& in, ptx::Space space, uint64_t address,
                          uint32_t bytes, uint32_t lane);

}  // namespace fargpu::sim
