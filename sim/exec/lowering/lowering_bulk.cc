// Bulk copies: cp.async.bulk, of bytes and of tensors.
#include <fmt/core.h>

#include "sim/exec/bulk_op.h"
#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {

using ptx::Space;
using ptx::Type;

// What follows the addresses: size, barrier, mask of blocks, policy.
struct Lowering::BulkForm {
  Space to = Space::kGeneric, from = Space::kGeneric;
  bool barrier = false, blocks = false, policy = false;
};

bool Lowering::take_bulk_form(Modifiers& mods, BulkForm& form) {
  const auto space = [](std::string_view word) {
    return word == "global" ? Space::kGlobal : word.empty() ? Space::kGeneric : Space::kShared;
  };
  constexpr std::string_view kSpaces = "global shared shared::cta shared::cluster";
  form.to = space(mods.take_next(kSpaces));
  form.from = space(mods.take_next(kSpaces));
  form.barrier = mods.take("mbarrier::complete_tx::bytes");
  const bool group = mods.take("bulk_group");
  form.blocks = mods.take("multicast::cluster");
  form.policy = mods.take("L2::cache_hint");
  const bool load = form.to == Space::kShared && form.from != Space::kGeneric;
  const bool store = form.to == Space::kGlobal && form.from == Space::kShared;
  return (load && form.barrier && !group && (!form.blocks || form.from == Space::kGlobal)) ||
         (store && group && !form.barrier && !form.blocks);
}

// The operands from `at` on: barrier, blocks, policy.
void Lowering::add_bulk_signals(const BulkForm& form, size_t at, BulkOp& op) {
  if (form.barrier) {
    Instr barrier;
    if (!barrier_address(operand(at++), Space::kShared, barrier)) return;
    op.barrier = barrier.a;
  }
  if (form.blocks) op.blocks = source(at++, Type::kB16);
  if (form.policy) source(at, Type::kB64);
}

void Lowering::emit_bulk(const BulkOp& op) {
  if (failed()) return;
  emit("bulk").imm = program_.bulk_ops.size();
  program_.bulk_ops.push_back(op);
}

void Lowering::lower_bulk(Modifiers& mods) {
  if (!mods.take_one("commit_group").empty()) {
    done(mods);
    expect_operands(0, 0);
    return static_cast<void>(emit("nop"));
  }
  if (!mods.take_one("wait_group").empty()) {
    mods.take("read");
    done(mods);
    expect_operands(1, 1);
    return static_cast<void>(emit("nop"));
  }
  const bool prefetch = mods.take("prefetch");
  if (mods.take("tensor")) return lower_bulk_tensor(mods, prefetch);
  if (prefetch) {
    mods.take("L2"), mods.take("global");
    const bool policy = mods.take("L2::cache_hint");
    done(mods);
    expect_operands(policy ? 3 : 2, policy ? 3 : 2);
    return static_cast<void>(emit("nop"));
  }
  BulkForm form;
  const bool right = take_bulk_form(mods, form);
  done(mods);
  if (failed()) return;
  if (!right) return refuse("no such copy");
  const size_t count = 3u + form.barrier + form.blocks + form.policy;
  expect_operands(count, count);
  BulkOp op{.to_space = form.to, .from_space = form.from};
  Instr to, from;
  if (failed() || !memory_operand(operand(0), form.to, 16, to) ||
      !memory_operand(operand(1), form.from, 16, from)) {
    return;
  }
  op.to = whole_address(to);
  op.from = whole_address(from);
  op.bytes = source(2, Type::kU32);
  add_bulk_signals(form, 3, op);
  emit_bulk(op);
}

void Lowering::lower_bulk_tensor(Modifiers& mods, bool prefetch) {
  const std::string_view rank = mods.take_one("1d 2d 3d 4d 5d");
  BulkForm form;
  bool right = true;
  if (prefetch) {
    right = mods.take("L2") && mods.take("global");
    form.policy = mods.take("L2::cache_hint");
  } else {
    right =
        take_bulk_form(mods, form) && (form.to == Space::kGlobal || form.from == Space::kGlobal);
  }
  mods.take("tile");
  if (const std::string_view mode = mods.left(); mode.starts_with("im2col"))
    return refuse("im2col");
  done(mods);
  if (failed()) return;
  if (!right || rank.empty()) return refuse("no such copy");
  const size_t count = (prefetch ? 1u : 2u) + form.barrier + form.blocks + form.policy;
  expect_operands(count, count);
  if (failed()) return;
  if (prefetch) return static_cast<void>(emit("nop"));
  const bool load = form.to == Space::kShared;
  BulkOp op{.to_space = form.to, .from_space = form.from};
  op.rank = static_cast<unsigned>(rank[0] - '0');
  Operand tensor = operand(load ? 1 : 0);
  std::vector<OperandRef> coordinates;
  if (dry_) {
    coordinates.assign(op.rank, operand_ref(kConstArea, 0));
  } else {
    if (tensor.kind != Operand::Kind::kAddress || tensor.parts.size() != 2)
      return fail("expected [tensor map, coordinates]");
    const Operand& vector = tensor.parts[1];
    const size_t given = vector.kind == Operand::Kind::kVector ? vector.parts.size() : 1;
    if (given != op.rank) return fail(fmt::format("expected {} coordinates", op.rank));
    add_vector(vector, op.rank, Type::kS32, coordinates);
    tensor.parts.resize(1);
  }
  Instr map, shared;
  if (failed() || !memory_operand(tensor, Space::kGeneric, 64, map) ||
      !memory_operand(operand(load ? 0 : 1), Space::kShared, 16, shared)) {
    return;
  }
  op.to = whole_address(load ? shared : map);
  op.from = whole_address(load ? map : shared);
  std::copy(coordinates.begin(), coordinates.end(), op.coordinates.begin());
  add_bulk_signals(form, 2, op);
  emit_bulk(op);
}

}  // namespace fargpu::sim
