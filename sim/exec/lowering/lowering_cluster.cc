// Thread-block clusters: barrier.cluster, mapa, getctarank.
#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {

using ptx::Space;
using ptx::Type;

void Lowering::lower_cluster_barrier(Modifiers& mods) {
  const std::string_view action = mods.take_one("arrive wait");
  mods.take_one("release relaxed acquire");
  mods.take("aligned");
  done(mods);
  if (action.empty()) return refuse("no such barrier");
  expect_operands(0, 0);
  emit(action == "arrive" ? "cluster.arrive" : "cluster.wait");
}

// mapa, getctarank. Without a space the addresses are generic.
void Lowering::lower_cluster_address(Modifiers& mods) {
  const bool maps = current_->opcode == "mapa", shared = mods.take("shared::cluster");
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kU32 && type != Type::kU64) return refuse("no such type");
  expect_operands(maps ? 3 : 2, maps ? 3 : 2);
  const bool wide = type == Type::kU64;
  if (maps) {
    const OperandRef a = source(1, type), rank = source(2, Type::kU32);
    Instr& in = emit(wide ? "mapa.64" : "mapa.32", destination(0, type), a, rank);
    in.imm = shared || !wide ? 0 : kSharedWindow;
    return;
  }
  const OperandRef a = source(1, type);
  emit(wide ? "getctarank.64" : "getctarank.32", destination(0, Type::kU32), a);
}

}  // namespace fargpu::sim
