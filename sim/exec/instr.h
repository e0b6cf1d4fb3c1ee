// The decoded form of instructions: small, pre-resolved, executed by calling `run` for all active
// lanes of a warp.
//
// Operands are references into one of four areas (bits 0-1: the area, the rest: byte offset).
// Values lie as structure of arrays: 32 lanes of one register side by side, so that loops over
// lanes become vector code. A predicate is one 32-bit word with a bit per lane.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fargpu::sim {

struct Exec;
struct Instr;
using Handler = void (*)(Exec&, const Instr&);

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAllLanes = ~uint32_t{0};

using OperandRef = uint32_t;
inline constexpr OperandRef kNoOperand = ~uint32_t{0};

enum Area : uint32_t {
  kFrameArea = 0,  // registers of the running function
  kConstArea = 1,  // constants of the program, and zeros
  kWarpArea = 2,   // thread indices
  kBlockArea = 3,  // block and grid dimensions and indices
};

inline constexpr OperandRef operand_ref(Area area, uint32_t offset) { return offset | area; }

// Floating-point control: 0 is round to nearest even with denormals. Otherwise bits of the SSE
// control register.
inline constexpr uint16_t kRoundDown = 0x2000, kRoundUp = 0x4000, kRoundZero = 0x6000;
inline constexpr uint16_t kFlushDenormals = 0x8040;

struct Instr {
  Handler run = nullptr;
  OperandRef guard = kNoOperand;
  bool guard_negated = false;
  uint8_t sub = 0;    // the handler's own variant
  uint8_t size = 0;   // bytes of one memory element
  uint8_t count = 1;  // vector elements
  OperandRef dst = kNoOperand, a = kNoOperand, b = kNoOperand, c = kNoOperand, d = kNoOperand;
  uint16_t float_control = 0;
  uint8_t space = 0;    // ptx::Space of memory instructions
  uint8_t flags = 0;    // InstrFlags
  uint32_t target = 0;  // program counter, or index into a table of the program
  uint32_t join = 0;    // reconvergence point of a branch, kNoJoin without
  uint64_t imm = 0;
  int32_t line = 0;
  uint32_t text = 0;  // index of the instruction's name, for faults
};

inline constexpr uint32_t kNoJoin = ~uint32_t{0};

enum InstrFlags : uint8_t {
  kInvertA = 1,  // the predicate a is negated
  kInvertB = 2,
  kInvertC = 4,
  kFrameRelative = 8,   // memory: the address is relative to the function's local frame
  kSpins = 16,          // reads that a waiting loop repeats: volatile, acquire, compare-and-swap
  kNarrowAddress = 32,  // the address register has 32 bits
};

}  // namespace fargpu::sim
