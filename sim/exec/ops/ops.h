// The groups of micro-operations; each file ops_*.cc adds its own to the table. The first set is
// compiled once per host instruction set, the second once.
#pragma once

#include "sim/exec/ops/op_table.h"

namespace fargpu::sim {

#define FARGPU_SIM_ISA_OPS(isa)         \
  namespace isa {                       \
  void add_integer_ops(OpTable& table); \
  void add_float_ops(OpTable& table);   \
  void add_compare_ops(OpTable& table); \
  void add_convert_ops(OpTable& table); \
  void add_memory_ops(OpTable& table);  \
  }
FARGPU_SIM_ISA_OPS(isa_baseline)
FARGPU_SIM_ISA_OPS(isa_avx2)
#undef FARGPU_SIM_ISA_OPS

void add_bit_ops(OpTable& table);
void add_half_ops(OpTable& table);
void add_video_ops(OpTable& table);
void add_atomic_ops(OpTable& table);
void add_control_ops(OpTable& table);
void add_warp_ops(OpTable& table);
void add_cluster_ops(OpTable& table);
void add_memory_barrier_ops(OpTable& table);
void add_bulk_ops(OpTable& table);
void add_special_ops(OpTable& table);
void add_texture_ops(OpTable& table);
void add_surface_ops(OpTable& table);

}  // namespace fargpu::sim
