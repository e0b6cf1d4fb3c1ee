// A loaded program in its executable form. Immutable after load; shared by all grids that run it.
#pragma once

#include <string>
#include <vector>

#include "sim/exec/bulk_op.h"
#include "sim/exec/engine.h"
#include "sim/exec/instr.h"
#include "sim/exec/machine.h"
#include "sim/exec/matrix_op.h"

namespace fargpu::sim {

// Functions of the device runtime that the engine provides.
enum class Builtin : uint8_t {
  kNone,
  kPrintf,
  kAssertFail,
  kMalloc,
  kFree,
  kGraphLaunch,
  kNodeSetParam,
  kNodeSetEnabled,
  kNodeSetGridDim,
  kNodeUpdatesApply,
};

struct FunctionCode {
  std::string name;
  Builtin builtin = Builtin::kNone;
  bool is_entry = false;
  bool defined = false;
  uint32_t entry = 0;        // program counter
  uint32_t frame_bytes = 0;  // registers
  uint32_t local_bytes = 0;  // local frame of each lane, parameters of functions included
  std::vector<CallSite::Copy> params, returns;  // in the function's local frame
  KernelInfo info;                              // of kernels
  uint64_t local_need = 0;  // bytes of local memory a thread needs from here on, calls included
};

struct ProgramCode {
  std::vector<Instr> code;
  std::vector<FunctionCode> functions;
  std::vector<CallSite> call_sites;
  std::vector<std::vector<uint32_t>> branch_tables;
  std::vector<OperandRef> operand_lists;  // Instr::target is the index of the first
  std::vector<MatrixOp> matrix_ops;
  std::vector<BulkOp> bulk_ops;
  std::vector<std::string> texts;  // instruction names, for faults
  AlignedBuffer constants;         // kConstArea
};

inline const OperandRef* operand_list(const Exec& x, const Instr& in) {
  return x.grid->program->operand_lists.data() + in.target;
}

// kWarpArea and kBlockArea: arrays of 32 lanes of 32-bit values.
enum WarpValue : uint32_t { kTidX, kTidY, kTidZ, kWarpId, kLaneId, kWarpValueCount };
enum BlockValue : uint32_t {
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kNwarpId,
  kSmid,
  kNsmid,
  kGridIdLow,
  kDynamicShared,
  kTotalShared,
  kEnvreg1,
  kEnvreg2,
  kDynamicBase,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterRank,
  kClusterBlocks,
  kExplicitCluster,  // a predicate
  kCurrentGraph,     // 64 bits, two places
  kCurrentGraphHigh,
  kBlockValueCount
};
inline constexpr uint32_t kValueBytes = kLanes * 4;

inline constexpr size_t kDynamicSharedAlign = 128;
inline constexpr size_t kWorkspaceBytes = 256;

}  // namespace fargpu::sim
