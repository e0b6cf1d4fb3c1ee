// Moves, loads, stores, addresses, atomics, asynchronous copies, fences.
#include <fmt/core.h>

#include <algorithm>

#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Space;
using ptx::Type;

std::string width_key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::register_bytes(type) * 8);
}

// The element in memory as the load operations name it: signed only where it widens.
std::string memory_name(Type type) {
  const unsigned bits = ptx::type_bytes(type) * 8;
  if (bits == 128) return "b128";
  return fmt::format("{}{}", ptx::is_signed(type) && bits < 64 ? 's' : 'u', bits);
}

}  // namespace

void Lowering::lower_mov(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  expect_operands(2, 2);
  if (type == Type::kPred) {
    bool inverted = false;
    const OperandRef a = source_predicate(operand(1), inverted);
    set_predicate_flag(emit("mov.pred", destination_predicate(operand(0)), a), inverted, kInvertA);
    return;
  }
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes < 2 || type == Type::kOpaque) return refuse("no such type");
  const Operand &to = operand(0), &from = operand(1);
  const bool packs = from.kind == Operand::Kind::kVector,
             unpacks = to.kind == Operand::Kind::kVector;
  if (packs || unpacks) {
    const std::vector<Operand>& parts = packs ? from.parts : to.parts;
    const size_t count = parts.size();
    if (packs == unpacks || (count != 2 && count != 4 && count != 8) || bytes % count != 0) {
      return fail("parts do not make up the whole");
    }
    const auto size = static_cast<unsigned>(bytes / count);
    const Type part = size == 1   ? Type::kB8
                      : size == 2 ? Type::kB16
                      : size == 4 ? Type::kB32
                                  : Type::kB64;
    std::vector<OperandRef> refs;
    for (const Operand& o : parts) {
      if (size == 1) {  // 8-bit parts live in 16-bit registers
        refs.push_back(packs ? source(o, Type::kB16) : destination(o, Type::kB16));
      } else if (unpacks && o.kind == Operand::Kind::kSink) {
        refs.push_back(kNoOperand);
      } else {
        refs.push_back(packs ? source(o, part) : destination(o, part));
      }
    }
    const OperandRef a = unpacks ? source(1, type) : kNoOperand;
    const OperandRef d = packs ? destination(0, type) : kNoOperand;
    Instr& in = emit(size == 1 ? (packs ? "pack.8" : "unpack.8") : packs ? "pack" : "unpack", d, a);
    in.size = static_cast<uint8_t>(size);
    in.count = static_cast<uint8_t>(count);
    in.target = add_list(refs);
    return;
  }
  const OperandRef a = source(1, type);
  emit(width_key("mov", type), destination(0, type), a);
}

// [base + offset] of a memory instruction. False after an error.
bool Lowering::memory_operand(const Operand& o, Space space, unsigned bytes, Instr& in) {
  in.space = static_cast<uint8_t>(space);
  if (dry_) {
    in.a = operand_ref(kConstArea, 0);
    return true;
  }
  if (o.kind != Operand::Kind::kAddress || o.parts.size() != 1) {
    fail("expected an address");
    return false;
  }
  const Operand& base = o.parts[0];
  in.imm = o.value;
  const auto narrow_ok = [&] {
    return space == Space::kShared || space == Space::kLocal || space == Space::kParam ||
           space == Space::kConst;
  };
  if (base.kind == Operand::Kind::kRegister) {
    const unsigned size = register_size(base);
    if (size != 8 && !(size == 4 && narrow_ok())) {
      fail(fmt::format("'{}' is no address register", base.name));
      return false;
    }
    in.a = register_ref(base.index);
    if (size == 4) in.flags |= kNarrowAddress;
    // The parameters of a function are in its local memory.
    if (space == Space::kParam && !function_.is_entry)
      in.space = static_cast<uint8_t>(Space::kLocal);
    return true;
  }
  if (base.kind == Operand::Kind::kInteger) {
    in.imm = base.value + o.value;
    return true;
  }
  if (base.kind == Operand::Kind::kVariable) {
    const Place& place = places_[base.index];
    in.imm = place.offset + o.value;
    if (place.space == Space::kLocal) {
      if (space != Space::kLocal && space != Space::kParam) {
        fail(fmt::format("'{}' is not in this space", base.name));
        return false;
      }
      in.space = static_cast<uint8_t>(Space::kLocal);
      in.flags |= kFrameRelative;
      return true;
    }
    if (place.space == Space::kParam) {
      const uint64_t size = program_.functions[function_index_].info.parameter_bytes;
      if (space != Space::kParam || in.imm > size || bytes > size - in.imm) {
        fail(fmt::format("the access is not inside of the parameters ('{}')", base.name));
        return false;
      }
      if (in.imm % bytes != 0) {
        fail(fmt::format("the access to '{}' is not aligned", base.name));
        return false;
      }
      return true;
    }
    if (place.space != space) {
      fail(fmt::format("'{}' is not in this space", base.name));
      return false;
    }
    return true;
  }
  if (base.kind == Operand::Kind::kSymbol) {
    const auto found = context_.symbols->find(base.name);
    if (found == context_.symbols->end()) {
      unresolved(base.name);
      return false;
    }
    const Symbol& symbol = found->second;
    const bool shared =
        symbol.kind == Symbol::Kind::kShared || symbol.kind == Symbol::Kind::kDynamicShared;
    const bool memory = symbol.kind == Symbol::Kind::kMemory;
    if (!(shared && space == Space::kShared) &&
        !(memory && (space == symbol.space || space == Space::kGeneric))) {
      fail(fmt::format("'{}' is not in this space", base.name));
      return false;
    }
    if (symbol.kind == Symbol::Kind::kDynamicShared) {
      in.a = operand_ref(kBlockArea, kDynamicBase * kValueBytes);
      in.flags |= kNarrowAddress;
    } else {
      in.imm = symbol.value + o.value;
    }
    return true;
  }
  fail("expected an address");
  return false;
}

// Modifiers about caches and the memory model. The engine executes every access in order, so they
// only tell whether a loop around the access may be waiting for another thread.
void Lowering::take_cache_words(Modifiers& mods, bool& spins) {
  spins = false;
  if (!mods.take_one("volatile relaxed acquire mmio").empty()) spins = true;
  mods.take_one("weak release acq_rel sc");
  mods.take_one("cta cluster gpu sys gl");
  mods.take_one("ca cg cs lu cv wb wt nc");
  mods.take_one("ca cg cs lu cv");  // after .nc
  mods.take_one(
      "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate");
  mods.take_one("L2::evict_normal L2::evict_first L2::evict_last");
  mods.take_one("L2::cache_hint");
  mods.take_one("L2::64B L2::128B L2::256B");
  mods.take("unified");
}

void Lowering::lower_load(Modifiers& mods) {
  const bool uniform = current_->opcode == "ldu";
  bool spins = false;
  const bool hint = !current_->modifiers.empty() &&
                    std::find(current_->modifiers.begin(), current_->modifiers.end(),
                              "L2::cache_hint") != current_->modifiers.end();
  take_cache_words(mods, spins);
  const Space space = mods.take_space().value_or(Space::kGeneric);
  const std::string_view vector = mods.take_one("v2 v4 v8");
  const Type type = mods.take_type();
  done(mods);
  if (uniform && space != Space::kGlobal && space != Space::kGeneric)
    return refuse("no such space");
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes == 0 || type == Type::kPred || type == Type::kOpaque) return refuse("no such type");
  const unsigned count = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  if (bytes * count > 32) return refuse("no such vector");
  expect_operands(hint ? 3 : 2, hint ? 3 : 2);
  const std::string memory = memory_name(type);
  Instr prepared;
  if (spins) prepared.flags = kSpins;
  if (failed() || !memory_operand(operand(1), space, bytes * count, prepared)) return;
  const auto finish = [&](Instr& in) {
    in.a = prepared.a;
    in.imm = prepared.imm;
    in.space = prepared.space;
    in.flags = prepared.flags;
    in.size = static_cast<uint8_t>(bytes);
    in.count = static_cast<uint8_t>(count);
  };
  // The registers may be wider than the elements; all of a vector are equally wide.
  const auto width = [&](const Operand& o) {
    const unsigned size = register_size(o);
    return dry_ || size == 0 ? ptx::register_bytes(type) : size;
  };
  const auto type_of = [](unsigned size) {
    return size == 2 ? Type::kB16 : size == 4 ? Type::kB32 : size == 8 ? Type::kB64 : Type::kB128;
  };
  if (count == 1) {
    const unsigned size = width(operand(0));
    const OperandRef d = destination(0, type_of(size));
    if (size < ptx::register_bytes(type)) return fail("the register is too narrow");
    Instr& in = emit(fmt::format("ld.{}.{}", memory, size * 8));
    in.dst = d;
    finish(in);
    return;
  }
  const std::vector<Operand>& parts = operand(0).parts;
  if (!dry_ && (operand(0).kind != Operand::Kind::kVector || parts.size() != count)) {
    return fail(fmt::format("expected a vector of {} registers", count));
  }
  unsigned size = ptx::register_bytes(type);
  for (const Operand& o : parts) size = std::max(size, register_size(o));
  std::vector<OperandRef> refs;
  for (unsigned i = 0; i < count; ++i) {
    const Operand& o = dry_ ? operand(0) : parts[i];
    if (!dry_ && o.kind != Operand::Kind::kSink && register_size(o) != size) {
      return fail("the registers of a vector have different sizes");
    }
    refs.push_back(destination(o, type_of(size)));
  }
  Instr& in = emit(fmt::format("ld.v.{}.{}", memory, size * 8));
  finish(in);
  in.target = add_list(refs);
}

void Lowering::lower_store(Modifiers& mods) {
  bool spins = false;
  const bool hint = std::find(current_->modifiers.begin(), current_->modifiers.end(),
                              "L2::cache_hint") != current_->modifiers.end();
  // What is stored asynchronously is there at once, and its barrier hears of it.
  const bool async = mods.take("async") && mods.take("mbarrier::complete_tx::bytes");
  take_cache_words(mods, spins);
  const Space space = mods.take_space().value_or(Space::kGeneric);
  const std::string_view vector = mods.take_one("v2 v4 v8");
  const Type type = mods.take_type();
  done(mods);
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes == 0 || type == Type::kPred || type == Type::kOpaque) return refuse("no such type");
  if (space == Space::kConst ||
      (space == Space::kParam && function_.is_entry && !dry_ &&
       operand(0).kind == Operand::Kind::kAddress && !operand(0).parts.empty() &&
       operand(0).parts[0].kind == Operand::Kind::kRegister)) {
    return refuse("this space cannot be written");
  }
  const unsigned count = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  if (bytes * count > 32) return refuse("no such vector");
  expect_operands(hint || async ? 3 : 2, hint || async ? 3 : 2);
  Instr prepared;
  if (failed() || !memory_operand(operand(0), space, bytes * count, prepared)) return;
  if (prepared.space == static_cast<uint8_t>(Space::kParam) && !dry_)
    return fail("a kernel's parameters cannot be written");
  const Operand& value = operand(1);
  const std::vector<Operand> single = {value};
  const std::vector<Operand>& parts = count == 1 ? single : value.parts;
  if (!dry_ && count > 1 && (value.kind != Operand::Kind::kVector || parts.size() != count)) {
    return fail(fmt::format("expected a vector of {} registers", count));
  }
  unsigned size = ptx::register_bytes(type);
  for (const Operand& o : parts) size = std::max(size, register_size(o));
  const auto type_of = [&](unsigned width) {
    if (width == ptx::register_bytes(type)) return type;
    return width == 4 ? Type::kB32 : width == 8 ? Type::kB64 : Type::kB128;
  };
  std::vector<OperandRef> refs;
  for (unsigned i = 0; i < count; ++i) {
    const Operand& o = dry_ ? value : parts[i];
    if (!dry_ && o.kind == Operand::Kind::kSink) return fail("'_' cannot be stored");
    const unsigned have = register_size(o);
    if (have != 0 && have < ptx::register_bytes(type)) return fail("the register is too narrow");
    OperandRef ref = source(o, type_of(have == 0 ? size : have));
    if (have != 0) ref = resize(ref, have, size, false);
    refs.push_back(ref);
  }
  Instr& in = emit(count == 1 ? fmt::format("st.{}.{}", bytes * 8, size * 8)
                              : fmt::format("st.v.{}.{}", bytes * 8, size * 8));
  in.a = prepared.a;
  in.imm = prepared.imm;
  in.space = prepared.space;
  in.flags = prepared.flags;
  in.size = static_cast<uint8_t>(bytes);
  in.count = static_cast<uint8_t>(count);
  if (count == 1)
    in.b = refs[0];
  else
    in.target = add_list(refs);
  if (async) emit_completion(operand(2), bytes * count);
}

void Lowering::lower_cvta(Modifiers& mods) {
  const bool to = mods.take("to");
  const std::optional<Space> space = mods.take_space();
  const Type type = mods.take_type();
  done(mods);
  if (!space || type != Type::kU64) return refuse("needs a space and .u64");
  expect_operands(2, 2);
  uint64_t window = 0;
  if (*space == Space::kShared) window = kSharedWindow;
  if (*space == Space::kLocal) window = kLocalWindow;
  if (*space == Space::kParam) window = function_.is_entry ? kParamWindow : kLocalWindow;
  const OperandRef a = source(1, type);
  const OperandRef d = destination(0, type);
  if (window == 0) {
    emit("mov.64", d, a);
  } else {
    emit(to ? "sub.64" : "add.64", d, a, context_.constants->value(window, 8));
  }
}

void Lowering::lower_isspacep(Modifiers& mods) {
  const bool cluster = mods.take("shared::cluster");
  const std::optional<Space> space = cluster ? Space::kShared : mods.take_space();
  done(mods);
  if (!space) return refuse("needs a space");
  expect_operands(2, 2);
  const OperandRef a = source(1, Type::kU64), d = destination_predicate(operand(0));
  Instr& in = emit("isspacep", d, a);
  in.imm = *space == Space::kShared  ? kSharedWindow
           : *space == Space::kLocal ? kLocalWindow
           : *space == Space::kParam ? kParamWindow
                                     : 0;
  in.sub = *space == Space::kConst ? 1 : *space == Space::kShared && !cluster ? 2 : 0;
}

void Lowering::lower_atom(Modifiers& mods) {
  const bool returns = current_->opcode == "atom";
  const bool async = mods.take("async") && mods.take("mbarrier::complete_tx::bytes");
  bool spins = false;
  // The operation first: ".and" and ".or" are never anything else here.
  const std::string_view operation = mods.take_one("add min max and or xor inc dec exch cas");
  mods.take("noftz");
  take_cache_words(mods, spins);
  const Space space = mods.take_space().value_or(Space::kGeneric);
  const std::string_view vector = mods.take_one("v2 v4 v8");
  const Type type = mods.take_type();
  done(mods);
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared)
    return refuse("no such space");
  if (operation.empty() || (!returns && (operation == "exch" || operation == "cas")))
    return refuse("no such operation");
  const std::string op = fmt::format("atom.{}.{}", operation, ptx::type_name(type));
  const unsigned count = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  if (count > 1 && operation != "add" && operation != "min" && operation != "max")
    return refuse("no such vector");
  const bool hint = std::find(current_->modifiers.begin(), current_->modifiers.end(),
                              "L2::cache_hint") != current_->modifiers.end();
  const size_t first = returns ? 1 : 0;
  const size_t sources = operation == "cas" ? 2 : 1;
  const size_t more = async ? 1 : 0;
  expect_operands(first + 1 + sources + more, first + 1 + sources + (hint || async ? 1 : 0));
  Instr prepared;
  const unsigned bytes = ptx::type_bytes(type);
  if (failed() || !memory_operand(operand(first), space, bytes, prepared)) return;
  if (prepared.space == static_cast<uint8_t>(Space::kParam) ||
      prepared.space == static_cast<uint8_t>(Space::kConst)) {
    return fail("this space cannot be written");
  }
  const auto one = [&](const Operand& value, const Operand* to, unsigned index, OperandRef dst) {
    const OperandRef b = source(value, type);
    const OperandRef c = sources == 2 ? source(first + 2, type) : kNoOperand;
    Instr& in = emit(op, to == nullptr ? kNoOperand : dst, prepared.a, b, c);
    in.imm = prepared.imm + uint64_t{index} * bytes;
    in.space = prepared.space;
    in.size = static_cast<uint8_t>(bytes);
    in.flags = static_cast<uint8_t>(prepared.flags |
                                    (operation == "cas" || operation == "exch" ? kSpins : 0));
  };
  if (count == 1) {
    const OperandRef dst = returns ? destination(0, type) : kNoOperand;
    one(operand(first + 1), returns ? &operand(0) : nullptr, 0, dst);
    if (async) emit_completion(operand(2), bytes);
    return;
  }
  if (!dry_ &&
      (operand(first + 1).parts.size() != count || (returns && operand(0).parts.size() != count))) {
    return fail(fmt::format("expected vectors of {} registers", count));
  }
  // Element by element: the vector as a whole need not be atomic.
  std::vector<OperandRef> results;
  for (unsigned i = 0; i < count; ++i) results.push_back(temp(ptx::register_bytes(type)));
  for (unsigned i = 0; i < count; ++i) {
    one(dry_ ? operand(first + 1) : operand(first + 1).parts[i], returns ? &operand(0) : nullptr, i,
        results[i]);
  }
  if (!returns || dry_) return;
  for (unsigned i = 0; i < count; ++i)
    emit(width_key("mov", type), destination(operand(0).parts[i], type), results[i]);
}

// The address as a plain 64-bit value. Not for what is relative to the function's frame.
OperandRef Lowering::whole_address(const Instr& in) {
  if (in.a == kNoOperand) return context_.constants->value(in.imm, 8);
  const OperandRef base = (in.flags & kNarrowAddress) != 0 ? resize(in.a, 4, 8, false) : in.a;
  if (in.imm == 0) return base;
  const OperandRef out = temp(8);
  emit("add.64", out, base, context_.constants->value(in.imm, 8));
  return out;
}

// cp.async: copies happen at once, so the group instructions have nothing to wait for.
void Lowering::lower_cp(Modifiers& mods) {
  if (!mods.take("async")) return refuse("no such copy");
  if (mods.take("reduce")) return refuse("reductions by bulk copies");
  if (mods.take("bulk")) return lower_bulk(mods);
  if (mods.take("mbarrier")) return lower_copy_arrival(mods);
  const std::string_view group = mods.take_one("commit_group wait_group wait_all");
  if (!group.empty()) {
    done(mods);
    const size_t count = group == "wait_group" ? 1 : 0;
    expect_operands(count, count);
    emit("nop");
    return;
  }
  const bool hint = mods.take("L2::cache_hint");
  const std::string_view cache = mods.take_one("ca cg");
  const bool to_shared = mods.take("shared") || mods.take("shared::cta");
  const bool from_global = mods.take("global");
  mods.take_one("L2::64B L2::128B L2::256B");
  done(mods);
  if (cache.empty() || !to_shared || !from_global) return refuse("no such copy");
  expect_operands(3, hint ? 5 : 4);
  if (dry_) return static_cast<void>(emit("cp.async"));
  const std::optional<uint64_t> bytes = constant_of(operand(2));
  if (!bytes || (*bytes != 4 && *bytes != 8 && *bytes != 16))
    return fail("the size is not 4, 8 or 16");
  Instr to, from;
  if (!memory_operand(operand(0), Space::kShared, static_cast<unsigned>(*bytes), to)) return;
  if (!memory_operand(operand(1), Space::kGlobal, static_cast<unsigned>(*bytes), from)) return;
  const OperandRef target = whole_address(to), source_address = whole_address(from);
  OperandRef count = kNoOperand;
  OperandRef ignored = kNoOperand;
  if (operand_count() > 3) {
    if (operand(3).kind == Operand::Kind::kRegister &&
        register_size(operand(3)) == 0) {  // ignore-src predicate
      bool inverted = false;
      ignored = source_predicate(operand(3), inverted);
      count = temp(4);
      Instr& in = emit("selp.32", count, context_.constants->value(0, 4),
                       context_.constants->value(*bytes, 4), ignored);
      set_predicate_flag(in, inverted, kInvertC);
    } else if (!hint || operand_count() == 5) {
      count = source(3, Type::kU32);
    }
  }
  Instr& in = emit("cp.async", kNoOperand, target, source_address, count);
  in.count = static_cast<uint8_t>(*bytes);
}

// prefetch, prefetchu, applypriority, discard, griddepcontrol: hints without an effect here.
void Lowering::lower_hint(Modifiers& mods) {
  mods.take("tensormap");
  const std::string_view op = current_->opcode;
  if (op == "griddepcontrol") {
    if (mods.take_one("launch_dependents wait").empty()) return refuse("no such action");
    done(mods);
    expect_operands(0, 0);
    emit("nop");
    return;
  }
  if (op == "pmevent") mods.take("mask");
  mods.take_space();
  mods.take_one("L1 L2 L2::evict_last L2::evict_normal L2::128B");
  mods.take_one("L2::evict_normal");
  done(mods);
  expect_operands(1, 2);
  emit("nop");
}

void Lowering::lower_createpolicy(Modifiers& mods) {
  if (mods.take_one("fractional range cvt").empty()) return refuse("no such policy");
  mods.take("global");
  mods.take_one("L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged");
  mods.take_one("L2::evict_first L2::evict_unchanged");
  mods.take("L2");
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kB64) return refuse("needs .b64");
  expect_operands(1, 4);
  emit("mov.64", destination(0, type), context_.constants->value(0, 8));
}

void Lowering::lower_fence(Modifiers& mods) {
  bool of_map = false;
  if (mods.take("proxy")) {
    // One memory, one way to it: nothing to order between proxies.
    of_map = mods.take("tensormap::generic");
    mods.take_one("alias async async.global async.shared::cta generic async::generic");
    mods.take_space();
    mods.take_one("acquire release sync_restrict::shared::cta sync_restrict::shared::cluster");
    mods.take_one("cta cluster gpu sys");
  } else if (mods.take("mbarrier_init")) {
    mods.take("release"), mods.take("cluster");
  } else {
    mods.take_one("sc acq_rel acquire release");
    mods.take_one("sync_restrict::shared::cta sync_restrict::shared::cluster");
    mods.take_one("cta cluster gpu sys gl");
  }
  done(mods);
  expect_operands(0, of_map ? 2 : 0);  // the map and its size
  emit("fence");
}

}  // namespace fargpu::sim
