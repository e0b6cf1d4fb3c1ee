// Which point of a cube's surface a direction means. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace fargpu::sim {

struct CubePoint {
  uint32_t face = 0;   // as CUarray_cubemap_face counts them
  float s = 0, t = 0;  // on the face, from 0 to 1
};
CubePoint cube_point(const std::array<float, 3>& direction);

}  // namespace fargpu::sim
