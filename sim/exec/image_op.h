// The modifiers of a texture or surface instruction, encoded in Instr::imm.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace fargpu::sim {

enum class Geometry : uint8_t { k1D, k2D, k3D, k1DLayered, k2DLayered, kCube, kCubeLayered };

// How many coordinates it has, without a layer.
constexpr unsigned dimensions(Geometry geometry) {
  switch (geometry) {
    case Geometry::k1D:
    case Geometry::k1DLayered:
      return 1;
    case Geometry::k2D:
    case Geometry::k2DLayered:
      return 2;
    default:
      return 3;
  }
}
constexpr bool is_layered(Geometry geometry) {
  return geometry == Geometry::k1DLayered || geometry == Geometry::k2DLayered ||
         geometry == Geometry::kCubeLayered;
}

enum class LevelBy : uint8_t { kBase, kLevel, kSteps };

// Operands in the list: four destinations, or two for pairs of halves, the layer, the coordinates,
// the level or the steps along x and y, the offsets.
struct TextureOp {
  Geometry geometry = Geometry::k2D;
  bool whole = false;  // coordinates and level are integers
  LevelBy level_by = LevelBy::kBase;
  bool offsets = false;
  bool gathers = false;
  uint8_t channel = 0;  // that it gathers
  bool halves = false;  // a destination takes two values, as f16
  uint8_t reserved = 0;

  unsigned destinations() const { return halves ? 2 : 4; }
};

enum class Outside : uint8_t { kTrap, kClamp, kZero };
enum class SurfaceAction : uint8_t { kLoad, kStore, kStoreFormatted, kReduce };
enum class Reduction : uint8_t { kAdd, kMin, kMax, kAnd, kOr };

// Operands in the list: the values, the layer, the coordinates.
struct SurfaceOp {
  Geometry geometry = Geometry::k2D;
  Outside outside = Outside::kTrap;
  SurfaceAction action = SurfaceAction::kLoad;
  Reduction reduction = Reduction::kAdd;
  bool is_signed = false;
  uint8_t register_bytes = 4;
  uint16_t reserved = 0;
};

enum class ImageQuery : uint8_t { kWidth, kHeight, kDepth, kLayers, kLevels, kNormalized };

template <typename Op>
uint64_t packed(const Op& op) {
  return std::bit_cast<uint64_t>(op);
}
template <typename Op>
Op unpacked(uint64_t imm) {
  return std::bit_cast<Op>(imm);
}

}  // namespace fargpu::sim
