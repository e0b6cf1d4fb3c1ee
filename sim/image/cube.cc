#include "sim/image/cube.h"

#include <cmath>

namespace fargpu::sim {

// The face is that of the largest coordinate m; the two others over m are the place on it (the
// table of the programming guide, "Cubemap Textures").
CubePoint cube_point(const std::array<float, 3>& direction) {
  const auto [x, y, z] = direction;
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  CubePoint point;
  float m = 0, s = 0, t = 0;
  if (ax >= ay && ax >= az) {
    point.face = x >= 0 ? 0 : 1;
    m = ax;
    s = x >= 0 ? -z : z;
    t = -y;
  } else if (ay >= az) {
    point.face = y >= 0 ? 2 : 3;
    m = ay;
    s = x;
    t = y >= 0 ? z : -z;
  } else {
    point.face = z >= 0 ? 4 : 5;
    m = az;
    s = z >= 0 ? x : -x;
    t = -y;
  }
  point.s = (s / m + 1) / 2;
  point.t = (t / m + 1) / 2;
  return point;
}

}  // namespace fargpu::sim
