// The warp-wide operations by number (Instr::sub of "warp"). Operands: dst, a the value or
// predicate, b and c of shfl, d the member mask (none: the active lanes), target the second
// destination, a predicate (kNoOperand without).
#pragma once

#include <cstdint>

namespace fargpu::sim {

enum class WarpOp : uint8_t {
  kBarrier,
  kShflUp,
  kShflDown,
  kShflBfly,
  kShflIdx,
  kVoteAll,
  kVoteAny,
  kVoteUni,
  kVoteBallot,
  kMatchAny,
  kMatchAll,
  kReduxAdd,
  kReduxMinU,
  kReduxMaxU,
  kReduxMinS,
  kReduxMaxS,
  kReduxAnd,
  kReduxOr,
  kReduxXor,
  kElect,
  kMatrix,  // all lanes at once, at the same instruction (matrix_op.h)
};

}  // namespace fargpu::sim
