// Texture fetches, as the CUDA programming guide describes them ("Texture Fetching"): address
// modes, point and linear filtering with weights of 8 fractional bits, mipmap levels, cubes,
// gathering. Behaviour of hardware beyond the guide is not imitated: cubes are filtered face by
// face, and there is no anisotropy. Pure functions, but for the check of memory.
#pragma once

#include <array>
#include <cstdint>

#include "sim/image/image.h"

namespace fargpu::sim {

// One lane's fetch.
struct Fetch {
  bool whole = false;              // the coordinates are integers, which count elements
  std::array<float, 3> at{};       // not of whole ones
  std::array<int32_t, 3> index{};  // of whole ones
  uint32_t layer = 0;
  float level = 0;
  std::array<int32_t, 3> offset{};  // in elements
};

// Four values: integers, or the bits of floats. Channels that a format lacks are 0, the fourth 1.
using Texel = std::array<uint32_t, 4>;

// Whether memory of the program (Image::by_address) may be read.
class MemoryCheck {
 public:
  virtual ~MemoryCheck() = default;
  virtual bool readable(uint64_t address, unsigned bytes) = 0;
};

// Whether a fetch gives floats.
bool gives_floats(const Texture& texture);
// False: memory that may not be read.
bool sample(const Texture& texture, const Fetch& fetch, MemoryCheck& check, Texel* texel);
// One channel of the four elements that a linear fetch looks at, counter-clockwise from the lower
// left one.
bool gather(const Texture& texture, const Fetch& fetch, unsigned channel, MemoryCheck& check,
            Texel* texel);
// The level at which an element is about a step wide: the longer one of both steps, in elements of
// level 0.
float level_of_steps(const Texture& texture, const std::array<float, 3>& dx,
                     const std::array<float, 3>& dy, unsigned dimensions);

}  // namespace fargpu::sim
