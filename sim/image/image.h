// Images as kernels see them: the image of a texture or surface object. Plain data, immutable once
// it is known to a kernel. Knows nothing of handles, contexts or instructions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace fargpu::sim {

class Tiles;

// How an element lies in memory: `channels` values of `bytes` bytes, one after the other.
struct PixelFormat {
  enum class Kind : uint8_t { kUnsigned, kSigned, kUnorm, kSnorm, kFloat };
  Kind kind = Kind::kUnsigned;
  uint8_t channels = 1;  // 1, 2 or 4
  uint8_t bytes = 4;     // 1, 2 or 4

  uint32_t element_bytes() const { return uint32_t{channels} * bytes; }
  bool is_integer() const { return kind == Kind::kUnsigned || kind == Kind::kSigned; }
  bool operator==(const PixelFormat&) const = default;
};

struct Image {
  enum class Shape : uint8_t { k1D, k2D, k3D, k1DLayered, k2DLayered, kCube, kCubeLayered };
  // A mipmap level. Its extents are in elements and never 0.
  struct Level {
    uint64_t base = 0;
    uint32_t width = 1, height = 1;
    uint32_t depth = 1;             // slices, or layers: six for each cube
    uint64_t pitch = 0, slice = 0;  // bytes from row to row, from slice to slice
    // Of a sparse array: `base` counts from the begin of the level.
    const Tiles* tiles = nullptr;
  };
  Shape shape = Shape::k2D;
  PixelFormat format;
  std::vector<Level> levels;
  // Memory of the program, not of an array: an access may turn out to be illegal.
  bool by_address = false;
  std::shared_ptr<const void> storage;  // the memory of the levels

  bool is_layered() const {
    return shape == Shape::k1DLayered || shape == Shape::k2DLayered || shape == Shape::kCubeLayered;
  }
  bool is_cube() const { return shape == Shape::kCube || shape == Shape::kCubeLayered; }
};

enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Sampler {
  std::array<AddressMode, 3> address{AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  bool linear = false;         // else the nearest element
  bool linear_levels = false;  // else the nearest level
  bool normalized = false;     // coordinates
  bool integers = false;       // 8- and 16-bit integers are not made floats
  bool srgb = false;           // 8-bit values are decoded to linear ones
  float level_bias = 0, min_level = 0, max_level = 0;
  std::array<float, 4> border{};
};

struct Texture {
  Image image;
  Sampler sampler;
};

struct Surface {
  Image image;  // of one level
};

}  // namespace fargpu::sim
