// Bulk copies in their executable form (cp.async.bulk). Instr::imm is the index of one in its
// program. Copies are done where they are issued: a wait finds them complete.
#pragma once

#include <array>

#include "sim/exec/instr.h"
#include "sim/ptx/types.h"

namespace fargpu::sim {

struct BulkOp {
  ptx::Space to_space = ptx::Space::kShared, from_space = ptx::Space::kGlobal;
  OperandRef to = kNoOperand, from = kNoOperand;  // 64-bit addresses; of a tensor: its map
  OperandRef bytes = kNoOperand;                  // 32 bits
  OperandRef barrier = kNoOperand;                // 64-bit address in shared memory, or none
  OperandRef blocks = kNoOperand;                 // multicast: a bit per block of the cluster
  unsigned rank = 0;                              // of the tensor; 0: plain memory
  std::array<OperandRef, 5> coordinates{};
};

}  // namespace fargpu::sim
