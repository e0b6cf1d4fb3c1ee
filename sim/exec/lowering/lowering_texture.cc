// Texture fetches, surface loads and stores, queries of both. Textures and surfaces are known by
// 64-bit values (objects); variables of a module (references) are refused.
#include <fmt/core.h>

#include <optional>

#include "sim/exec/image_op.h"
#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

std::optional<Geometry> take_geometry(Modifiers& mods) {
  constexpr std::pair<std::string_view, Geometry> kNames[] = {{"1d", Geometry::k1D},
                                                              {"2d", Geometry::k2D},
                                                              {"3d", Geometry::k3D},
                                                              {"a1d", Geometry::k1DLayered},
                                                              {"a2d", Geometry::k2DLayered},
                                                              {"cube", Geometry::kCube},
                                                              {"acube", Geometry::kCubeLayered}};
  for (const auto& [name, geometry] : kNames)
    if (mods.take(name)) return geometry;
  return std::nullopt;
}

}  // namespace

// The value that names an object.
OperandRef Lowering::image_value(const Operand& o) {
  const OperandRef harmless = operand_ref(kConstArea, 0);
  if (dry_) return harmless;
  if (o.kind != Operand::Kind::kAddress || o.parts.empty()) {
    fail("expected [object, coordinates]");
    return harmless;
  }
  const Operand& base = o.parts[0];
  if (base.kind == Operand::Kind::kSymbol || base.kind == Operand::Kind::kVariable) {
    refuse("texture and surface references");
    return harmless;
  }
  if (register_size(base) != 8 || o.value != 0) {
    fail("expected the 64-bit value of a texture or surface object");
    return harmless;
  }
  return register_ref(base.index);
}

// The first `count` elements of a vector (further ones are not used), or one value.
void Lowering::add_vector(const Operand& o, size_t count, Type type,
                          std::vector<OperandRef>& list) {
  const bool vector = o.kind == Operand::Kind::kVector;
  if (!dry_ && (vector ? o.parts.size() < count : count != 1))
    return fail(fmt::format("expected a vector of {}", count));
  for (size_t i = 0; i < count; ++i) list.push_back(source(vector ? o.parts[i] : o, type));
}

std::vector<OperandRef> Lowering::image_coordinates(const Operand& o, size_t count, Type type) {
  std::vector<OperandRef> list;
  if (dry_) return list;
  if (o.parts.size() != 2) {
    fail("expected [object, coordinates]");
  } else {
    add_vector(o.parts[1], count, type, list);
  }
  return list;
}

void Lowering::lower_tex(Modifiers& mods) {
  TextureOp op;
  if (mods.take("level")) op.level_by = LevelBy::kLevel;
  if (mods.take("grad")) op.level_by = LevelBy::kSteps;
  mods.take("base");
  const std::optional<Geometry> geometry = take_geometry(mods);
  const std::string_view vector = mods.take_one("v2 v4");
  const Type result = mods.take_type(), coordinates = mods.take_type();
  done(mods);
  op.halves = result == Type::kF16x2;
  if (!geometry || vector != (op.halves ? "v2" : "v4")) return refuse("no such geometry or vector");
  op.geometry = *geometry;
  op.whole = coordinates == Type::kS32;
  if (result != Type::kU32 && result != Type::kS32 && result != Type::kF32 && !op.halves)
    return refuse("no such result");
  if (!op.whole && coordinates != Type::kF32) return refuse("no such coordinates");
  if (op.whole && (dimensions(op.geometry) == 3 && op.geometry != Geometry::k3D))
    return refuse("no such coordinates");
  const size_t extra = op.level_by == LevelBy::kSteps ? 2 : op.level_by == LevelBy::kLevel ? 1 : 0;
  expect_operands(2 + extra, 3 + extra);
  if (failed()) return;
  op.offsets = !dry_ && operand_count() == 3 + extra;
  const OperandRef object = image_value(operand(1));
  std::vector<OperandRef> refs;
  if (!dry_ && operand(0).parts.size() != op.destinations())
    return fail(fmt::format("expected a vector of {} registers", op.destinations()));
  for (unsigned i = 0; i < op.destinations() && !dry_; ++i)
    refs.push_back(destination(operand(0).parts[i], Type::kB32));
  const unsigned count = dimensions(op.geometry);
  for (const OperandRef ref :
       image_coordinates(operand(1), count + (is_layered(op.geometry) ? 1 : 0), Type::kB32))
    refs.push_back(ref);
  if (!dry_ && op.level_by == LevelBy::kLevel) refs.push_back(source(2, coordinates));
  for (size_t i = 0; i < 2 && !dry_ && op.level_by == LevelBy::kSteps; ++i)
    add_vector(operand(2 + i), count, Type::kF32, refs);
  if (op.offsets) add_vector(operand(2 + extra), count, Type::kS32, refs);
  if (failed()) return;
  Instr& in = emit("tex");
  in.a = object;
  in.target = add_list(refs);
  in.imm = packed(op);
}

void Lowering::lower_tld4(Modifiers& mods) {
  TextureOp op;
  op.gathers = true;
  const std::string_view channel = mods.take_one("r g b a");
  const std::optional<Geometry> geometry = take_geometry(mods);
  const bool four = mods.take("v4");
  const Type result = mods.take_type(), coordinates = mods.take_type();
  done(mods);
  if (channel.empty() || !geometry || !four || coordinates != Type::kF32 ||
      (*geometry != Geometry::k2D && *geometry != Geometry::k2DLayered))
    return refuse("no such gather");
  if (result != Type::kU32 && result != Type::kS32 && result != Type::kF32)
    return refuse("no such result");
  op.geometry = *geometry;
  op.channel = static_cast<uint8_t>(std::string_view("rgba").find(channel));
  expect_operands(2, 3);
  if (failed()) return;
  op.offsets = !dry_ && operand_count() == 3;
  const OperandRef object = image_value(operand(1));
  std::vector<OperandRef> refs;
  if (!dry_ && operand(0).parts.size() != 4) return fail("expected a vector of 4 registers");
  for (unsigned i = 0; i < 4 && !dry_; ++i)
    refs.push_back(destination(operand(0).parts[i], Type::kB32));
  for (const OperandRef ref :
       image_coordinates(operand(1), is_layered(op.geometry) ? 3 : 2, Type::kB32))
    refs.push_back(ref);
  if (op.offsets) add_vector(operand(2), 2, Type::kS32, refs);
  if (failed()) return;
  Instr& in = emit("tex");
  in.a = object;
  in.target = add_list(refs);
  in.imm = packed(op);
}

void Lowering::lower_image_query(Modifiers& mods) {
  constexpr std::pair<std::string_view, ImageQuery> kNames[] = {
      {"width", ImageQuery::kWidth},
      {"height", ImageQuery::kHeight},
      {"depth", ImageQuery::kDepth},
      {"array_size", ImageQuery::kLayers},
      {"num_mipmap_levels", ImageQuery::kLevels},
      {"normalized_coords", ImageQuery::kNormalized}};
  const bool texture = current_->opcode == "txq";
  const bool by_level = mods.take("level");
  std::optional<ImageQuery> query;
  for (const auto& [name, value] : kNames)
    if (!query && mods.take(name)) query = value;
  const Type type = mods.take_type();
  done(mods);
  if (!query || type != Type::kB32 || (by_level && (!texture || *query > ImageQuery::kDepth)) ||
      (!texture && *query > ImageQuery::kLayers))
    return refuse("no such query");
  expect_operands(by_level ? 3 : 2, by_level ? 3 : 2);
  if (failed()) return;
  const OperandRef object = image_value(operand(1));
  const OperandRef level = by_level ? source(2, Type::kB32) : kNoOperand;
  Instr& in = emit(texture ? "txq" : "suq", destination(0, Type::kB32), object, level);
  in.sub = static_cast<uint8_t>(*query);
}

void Lowering::lower_surface(Modifiers& mods) {
  SurfaceOp op;
  const bool reduces = current_->opcode == "sured", loads = current_->opcode == "suld";
  op.action = reduces ? SurfaceAction::kReduce
              : loads ? SurfaceAction::kLoad
                      : SurfaceAction::kStore;
  if (op.action == SurfaceAction::kStore && mods.take("p")) {
    op.action = SurfaceAction::kStoreFormatted;
  } else if (!mods.take("b")) {
    return refuse("no such access");
  }
  if (reduces) {
    const std::string_view name = mods.take_one("add min max and or");
    if (name.empty()) return refuse("no such operation");
    op.reduction = name == "add"   ? Reduction::kAdd
                   : name == "min" ? Reduction::kMin
                   : name == "max" ? Reduction::kMax
                   : name == "and" ? Reduction::kAnd
                                   : Reduction::kOr;
  }
  const std::optional<Geometry> geometry = take_geometry(mods);
  mods.take_one("ca cg cs cv wb wt");
  const std::string_view vector = mods.take_one("v2 v4");
  const Type type = mods.take_type();
  const std::string_view outside = mods.take_one("trap clamp zero");
  done(mods);
  if (!geometry || *geometry == Geometry::kCube || *geometry == Geometry::kCubeLayered)
    return refuse("no such geometry");
  op.geometry = *geometry;
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes == 0 || bytes > 8 || type == Type::kPred || type == Type::kOpaque || outside.empty() ||
      (reduces && (bytes < 4 || !vector.empty())) ||
      (op.action == SurfaceAction::kStoreFormatted && bytes != 4))
    return refuse("no such access");
  op.outside = outside == "trap"    ? Outside::kTrap
               : outside == "clamp" ? Outside::kClamp
                                    : Outside::kZero;
  op.is_signed = ptx::is_signed(type);
  const unsigned count = vector.empty() ? 1 : static_cast<unsigned>(vector[1] - '0');
  if (bytes * count > 16) return refuse("no such vector");
  expect_operands(2, 2);
  if (failed()) return;
  const Operand& place = operand(loads ? 1 : 0);
  const Operand& value = operand(loads ? 0 : 1);
  const OperandRef object = image_value(place);
  const bool is_vector = value.kind == Operand::Kind::kVector;
  if (!dry_ && (is_vector ? value.parts.size() : 1) != count)
    return fail(fmt::format("expected {} values", count));
  unsigned size = ptx::register_bytes(type);
  const auto each = [&](unsigned i) -> const Operand& {
    return is_vector ? value.parts[i] : value;
  };
  for (unsigned i = 0; i < count && !dry_; ++i) size = std::max(size, register_size(each(i)));
  const Type held = size == 2 ? Type::kB16 : size == 4 ? Type::kB32 : Type::kB64;
  std::vector<OperandRef> refs;
  for (unsigned i = 0; i < count && !dry_; ++i)
    refs.push_back(loads ? destination(each(i), held) : source(each(i), held));
  const size_t coordinates =
      dimensions(op.geometry) + (is_layered(op.geometry) ? size_t{1} : size_t{0});
  for (const OperandRef ref : image_coordinates(place, coordinates, Type::kB32))
    refs.push_back(ref);
  if (failed()) return;
  op.register_bytes = static_cast<uint8_t>(size);
  Instr& in = emit("surface");
  in.a = object;
  in.size = static_cast<uint8_t>(bytes);
  in.count = static_cast<uint8_t>(count);
  in.target = add_list(refs);
  in.imm = packed(op);
}

}  // namespace fargpu::sim
