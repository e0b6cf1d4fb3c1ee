// Instructions of a warp that work on matrices: mma, wmma, ldmatrix, stmatrix, movmatrix.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "sim/exec/lowering/lowering.h"
#include "sim/exec/warp_op.h"

namespace fargpu::sim {
namespace {

using ptx::Space;
using ptx::Type;

struct Shape {
  std::string_view name;
  unsigned m, n, k;
  std::string_view elements;  // of A and B
};
constexpr Shape kMmaShapes[] = {
    {"m8n8k4", 8, 8, 4, "f16 f64"},
    {"m8n8k16", 8, 8, 16, "s8 u8"},
    {"m8n8k32", 8, 8, 32, "s4 u4"},
    {"m8n8k128", 8, 8, 128, "b1"},
    {"m16n8k4", 16, 8, 4, "tf32 f64"},
    {"m16n8k8", 16, 8, 8, "f16 bf16 tf32 f64"},
    {"m16n8k16", 16, 8, 16, "f16 bf16 s8 u8 e4m3 e5m2 f64"},
    {"m16n8k32", 16, 8, 32, "s8 u8 s4 u4 e4m3 e5m2"},
    {"m16n8k64", 16, 8, 64, "s4 u4"},
    {"m16n8k128", 16, 8, 128, "b1"},
    {"m16n8k256", 16, 8, 256, "b1"},
};
constexpr Shape kWmmaShapes[] = {
    {"m16n16k16", 16, 16, 16, "f16 bf16 s8 u8"},
    {"m32n8k16", 32, 8, 16, "f16 bf16 s8 u8"},
    {"m8n32k16", 8, 32, 16, "f16 bf16 s8 u8"},
    {"m16n16k8", 16, 16, 8, "tf32"},
    {"m8n8k4", 8, 8, 4, "f64"},
    {"m8n8k32", 8, 8, 32, "s4 u4"},
    {"m8n8k128", 8, 8, 128, "b1"},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

const Shape* take_shape(Modifiers& mods, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    if (mods.take(shape.name)) return &shape;
  }
  return nullptr;
}

std::string_view name_of(Element element) { return kElements[static_cast<size_t>(element)].name; }

// What D and C may be for these A and B.
bool fits(Element operand, Element accumulator) {
  if (operand == Element::kF64) return accumulator == Element::kF64;
  if (is_whole_number(operand)) return accumulator == Element::kS32;
  const bool half =
      operand == Element::kF16 || operand == Element::kE4m3 || operand == Element::kE5m2;
  return accumulator == Element::kF32 || (half && accumulator == Element::kF16);
}

// A and B may be of different types only where those are of one kind.
bool pair_up(Element a, Element b) {
  const auto both = [&](Element x, Element y) { return (a == x || a == y) && (b == x || b == y); };
  return a == b || both(Element::kS8, Element::kU8) || both(Element::kS4, Element::kU4) ||
         both(Element::kE4m3, Element::kE5m2);
}

Type register_type(const Fragment& fragment) {
  return fragment.element == Element::kF64   ? Type::kF64
         : fragment.element == Element::kF32 ? Type::kF32
                                             : Type::kB32;
}

// wmma holds f16 operands in eight registers, whatever the shape.
Fragment wmma_fragment(const Shape& shape, Role role, Element element) {
  const unsigned registers = element == Element::kF16 && role != Role::kAccumulator ? 8 : 0;
  if (role == Role::kA) return make_fragment(role, element, shape.m, shape.k, registers);
  if (role == Role::kB) return make_fragment(role, element, shape.k, shape.n, registers);
  return make_fragment(role, element, shape.m, shape.n);
}

}  // namespace

std::vector<Element> Lowering::take_elements(Modifiers& mods) {
  std::vector<Element> elements;
  for (;;) {
    const std::string_view word = mods.take_next(kElementNames);
    if (word.empty()) return elements;
    elements.push_back(*element_from_name(word));
  }
}

void Lowering::add_fragment(const Operand& o, const Fragment& fragment, bool writes,
                            std::vector<OperandRef>& list) {
  const Type type = register_type(fragment);
  const std::vector<Operand> single = {o};
  const std::vector<Operand>& parts = o.kind == Operand::Kind::kVector ? o.parts : single;
  if (!dry_ && parts.size() != fragment.registers)
    return fail(fmt::format("expected a vector of {} registers", fragment.registers));
  for (unsigned i = 0; i < fragment.registers; ++i) {
    const Operand& part = dry_ ? o : parts[i];
    list.push_back(writes ? destination(part, type) : source(part, type));
  }
}

Instr& Lowering::emit_matrix(MatrixOp op, const std::vector<OperandRef>& list) {
  Instr& in = emit("matrix");
  in.sub = static_cast<uint8_t>(WarpOp::kMatrix);
  in.imm = program_.matrix_ops.size();
  in.target = add_list(list);
  program_.matrix_ops.push_back(std::move(op));
  return in;
}

void Lowering::emit_product(Product product) {
  expect_operands(4, 4);
  if (failed()) return;
  std::vector<OperandRef> list;
  add_fragment(operand(0), product.d, true, list);
  add_fragment(operand(1), product.a, false, list);
  add_fragment(operand(2), product.b, false, list);
  add_fragment(operand(3), product.c, false, list);
  if (!failed()) emit_matrix({.product = std::move(product)}, list);
}

void Lowering::lower_mma(Modifiers& mods) {
  if (mods.take("sp") || mods.take("sp::ordered_metadata")) return refuse("sparse matrices");
  const bool sync = mods.take("sync");
  mods.take("aligned");
  const Shape* shape = take_shape(mods, kMmaShapes);
  const std::string_view a_layout = mods.take_next("row col"), b_layout = mods.take_next("row col");
  const bool saturate = mods.take("satfinite");
  const std::vector<Element> types = take_elements(mods);  // of D, A, B and C
  const std::string_view logic = mods.take_one("xor and");
  const bool bits = mods.take("popc");
  mods.take("rn");
  done(mods);
  if (failed()) return;
  if (!sync || shape == nullptr || b_layout.empty() || types.size() != 4)
    return refuse("no such product");
  const Element a = types[1], b = types[2];
  if (!has_word(shape->elements, name_of(a)) || !pair_up(a, b) || !fits(a, types[0]) ||
      !fits(a, types[3]) || (a == Element::kB1) != (bits && !logic.empty()) ||
      (saturate && (!is_whole_number(a) || a == Element::kB1))) {
    return refuse("no such types with this shape");
  }
  Product product{.saturate = saturate};
  if (bits) product.logic = logic == "xor" ? BitLogic::kXor : BitLogic::kAnd;
  if (shape->m == 8 && a == Element::kF16) {
    product.a = make_quad_fragment(Role::kA, a, a_layout == "col");
    product.b = make_quad_fragment(Role::kB, b, b_layout == "col");
    product.c = make_quad_fragment(Role::kAccumulator, types[3], false);
    product.d = make_quad_fragment(Role::kAccumulator, types[0], false);
    return emit_product(std::move(product));
  }
  if (a_layout != "row" || b_layout != "col") return refuse("no such layout");
  product.a = make_fragment(Role::kA, a, shape->m, shape->k);
  product.b = make_fragment(Role::kB, b, shape->k, shape->n);
  product.c = make_fragment(Role::kAccumulator, types[3], shape->m, shape->n);
  product.d = make_fragment(Role::kAccumulator, types[0], shape->m, shape->n);
  emit_product(std::move(product));
}

void Lowering::lower_wmma(Modifiers& mods) {
  const std::string_view action = mods.take_one("load store mma");
  const std::string_view logic = action == "mma" ? mods.take_one("xor and") : std::string_view{};
  const bool bits = !logic.empty() && mods.take("popc");
  const std::string_view matrix = action == "mma" ? std::string_view{} : mods.take_one("a b c d");
  const bool sync = mods.take("sync");
  mods.take("aligned");
  const Shape* shape = take_shape(mods, kWmmaShapes);
  const std::string_view layout = mods.take_next("row col");
  const std::string_view b_layout = action == "mma" ? mods.take_next("row col") : layout;
  const Space space = action == "mma" ? Space::kReg : mods.take_space().value_or(Space::kGeneric);
  std::vector<Element> types = take_elements(mods);
  const bool saturate = action == "mma" && mods.take("satfinite");
  if (action == "mma") mods.take("rn");
  done(mods);
  if (failed()) return;
  if (!sync || shape == nullptr || b_layout.empty() || types.empty()) return refuse("no such form");
  if (action == "mma") {
    if (types.size() == 2) types = {types[0], Element::kF16, Element::kF16, types[1]};
    const bool narrow = types.size() == 4 && element_bits(types[1]) < 8;
    if (types.size() != 4 || !has_word(shape->elements, name_of(types[1])) ||
        types[1] != types[2] || !fits(types[1], types[0]) || !fits(types[1], types[3]) ||
        (types[1] == Element::kB1) != bits || (narrow && (layout != "row" || b_layout != "col"))) {
      return refuse("no such types with this shape");
    }
    Product product{.saturate = saturate};
    if (bits) product.logic = logic == "xor" ? BitLogic::kXor : BitLogic::kAnd;
    product.a = wmma_fragment(*shape, Role::kA, types[1]);
    product.b = wmma_fragment(*shape, Role::kB, types[2]);
    product.c = wmma_fragment(*shape, Role::kAccumulator, types[3]);
    product.d = wmma_fragment(*shape, Role::kAccumulator, types[0]);
    return emit_product(std::move(product));
  }
  const bool load = action == "load", operands = matrix == "a" || matrix == "b";
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared)
    return refuse("no such space");
  if (types.size() != 1 || matrix.empty() || (matrix == "d") == load || (operands && !load))
    return refuse("no such form");
  if (operands && !has_word(shape->elements, name_of(types[0])))
    return refuse("no such type with this shape");
  if (!operands &&
      !fits(*element_from_name(shape->elements.substr(0, shape->elements.find(' '))), types[0]) &&
      !(shape->k == 16 && types[0] == Element::kS32)) {
    return refuse("no such type with this shape");
  }
  if (operands && element_bits(types[0]) < 8 && layout != (matrix == "a" ? "row" : "col"))
    return refuse("no such layout");
  MatrixOp op{.kind = load ? MatrixOp::Kind::kLoad : MatrixOp::Kind::kStore};
  op.column_major = layout == "col";
  op.fragment = wmma_fragment(*shape,
                              matrix == "a"   ? Role::kA
                              : matrix == "b" ? Role::kB
                                              : Role::kAccumulator,
                              types[0]);
  expect_operands(2, 3);
  const Operand& address = operand(load ? 1 : 0);
  Instr prepared;
  if (failed() || !memory_operand(address, space, element_bits(types[0]) < 8 ? 4 : 1, prepared))
    return;
  std::vector<OperandRef> list;
  add_fragment(operand(load ? 0 : 1), op.fragment, load, list);
  const OperandRef stride = operand_count() > 2 ? source(2, Type::kU32) : kNoOperand;
  const OperandRef from = whole_address(prepared);
  Instr& in = emit_matrix(std::move(op), list);
  in.a = from;
  in.b = stride;
  in.space = prepared.space;
}

void Lowering::lower_tiles(Modifiers& mods) {
  const std::string_view op_name = current_->opcode;
  const bool sync = mods.take("sync"), moves = op_name == "movmatrix";
  mods.take("aligned");
  const bool shape = mods.take("m8n8");
  const std::string_view count = moves ? "x1" : mods.take_one("x1 x2 x4");
  const bool transposed = mods.take("trans");
  const Space space = moves ? Space::kReg : mods.take_space().value_or(Space::kGeneric);
  const Type type = mods.take_type();
  done(mods);
  if (failed()) return;
  if (!sync || !shape || count.empty() || type != Type::kB16 || (moves && !transposed) ||
      (!moves && space != Space::kShared && space != Space::kGeneric)) {
    return refuse("no such form");
  }
  expect_operands(2, 2);
  if (failed()) return;
  if (moves) {
    const OperandRef from = source(1, Type::kB32), to = destination(0, Type::kB32);
    emit_matrix({.kind = MatrixOp::Kind::kTranspose}, {to, from});
    return;
  }
  const bool load = op_name == "ldmatrix";
  MatrixOp op{.kind = load ? MatrixOp::Kind::kLoadTiles : MatrixOp::Kind::kStoreTiles};
  op.tiles = static_cast<unsigned>(count[1] - '0');
  op.column_major = transposed;
  Instr prepared;
  if (!memory_operand(operand(load ? 1 : 0), space, 16, prepared)) return;
  Fragment registers;
  registers.registers = op.tiles;
  std::vector<OperandRef> list;
  add_fragment(operand(load ? 0 : 1), registers, load, list);
  const OperandRef from = whole_address(prepared);
  Instr& in = emit_matrix(std::move(op), list);
  in.a = from;
  in.space = prepared.space;
}

}  // namespace fargpu::sim
