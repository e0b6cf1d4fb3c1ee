// Memory barriers: mbarrier, and arrivals of asynchronous copies.
#include "sim/exec/lowering/lowering.h"
#include "sim/exec/mbarrier.h"

namespace fargpu::sim {

using ptx::Space;
using ptx::Type;

bool Lowering::barrier_address(const Operand& o, Space space, Instr& in) {
  Instr prepared;
  if (space != Space::kShared && space != Space::kGeneric) {
    refuse("no such space");
    return false;
  }
  if (failed() || !memory_operand(o, space, 8, prepared)) return false;
  in.a = whole_address(prepared);
  in.space = prepared.space;
  return true;
}

void Lowering::emit_barrier(MemoryBarrierOp op, const Instr& address, OperandRef dst, OperandRef b,
                            uint64_t flags) {
  Instr& in = emit("mbarrier", dst, address.a, b);
  in.space = address.space;
  in.sub = static_cast<uint8_t>(op);
  in.imm = flags;
}

void Lowering::lower_mbarrier(Modifiers& mods) {
  using Op = MemoryBarrierOp;
  const std::string_view action =
      mods.take_one("init inval arrive arrive_drop test_wait try_wait pending_count");
  const bool expects = mods.take("expect_tx"), completes = mods.take("complete_tx");
  const bool no_complete = mods.take("noComplete"), parity = mods.take("parity");
  mods.take_one("release acquire relaxed");
  mods.take_one("cta cluster gpu sys");
  const Space space = mods.take_space().value_or(Space::kGeneric);
  const Type type = mods.take_type();
  done(mods);
  const bool arrives = action.starts_with("arrive"), tests = action.ends_with("_wait");
  if (type != Type::kB64 || (parity && !tests) || (no_complete && (!arrives || expects)) ||
      (completes && (expects || !action.empty())) || (expects && !action.empty() && !arrives) ||
      (action.empty() && !expects && !completes)) {
    return refuse("no such form");
  }
  if (action == "pending_count") {
    expect_operands(2, 2);
    const OperandRef state = source(1, Type::kB64);
    return static_cast<void>(emit("mbarrier.pending_count", destination(0, Type::kB32), state));
  }
  Instr address;
  if (tests) {
    expect_operands(3, action == "try_wait" ? 4 : 3);
    if (!barrier_address(operand(1), space, address)) return;
    const OperandRef seen = source(2, parity ? Type::kB32 : Type::kB64);
    const OperandRef passed = destination_predicate(operand(0));
    return emit_barrier(parity ? Op::kTestParity : Op::kTest, address, passed, seen, 0);
  }
  if (arrives) {
    // The state is left out where the barrier is another block's.
    const size_t first = operand_count() != 0 && operand(0).kind == Operand::Kind::kAddress ? 0 : 1;
    const bool counted = expects || no_complete;
    expect_operands(first + (counted ? 2 : 1), first + 2);
    if (!barrier_address(operand(first), space, address)) return;
    const OperandRef count =
        operand_count() > first + 1 ? source(first + 1, Type::kU32) : kNoOperand;
    const OperandRef state = first == 1 ? destination(0, Type::kB64) : kNoOperand;
    return emit_barrier(Op::kArrive, address, state, count,
                        (action == "arrive_drop" ? kDrop : 0) | (expects ? kAnnounces : 0));
  }
  const size_t count = action == "inval" ? 1 : 2;
  expect_operands(count, count);
  if (!barrier_address(operand(0), space, address)) return;
  emit_barrier(action == "init"    ? Op::kInit
               : action == "inval" ? Op::kInvalidate
               : expects           ? Op::kExpect
                                   : Op::kComplete,
               address, kNoOperand, count == 2 ? source(1, Type::kU32) : kNoOperand, 0);
}

// cp.async.mbarrier.arrive: what is copied is there already.
void Lowering::lower_copy_arrival(Modifiers& mods) {
  const bool arrive = mods.take("arrive"), expected = mods.take("noinc");
  const Space space = mods.take_space().value_or(Space::kGeneric);
  const Type type = mods.take_type();
  done(mods);
  if (!arrive || type != Type::kB64) return refuse("no such form");
  expect_operands(1, 1);
  Instr address;
  if (!barrier_address(operand(0), space, address)) return;
  emit_barrier(MemoryBarrierOp::kArrive, address, kNoOperand, kNoOperand, expected ? 0 : kAdds);
}

// The barrier of an asynchronous store: `bytes` more are there.
void Lowering::emit_completion(const Operand& barrier, unsigned bytes) {
  Instr address;
  if (!barrier_address(barrier, Space::kShared, address)) return;
  emit_barrier(MemoryBarrierOp::kComplete, address, kNoOperand, context_.constants->value(bytes, 4),
               0);
}

}  // namespace fargpu::sim
