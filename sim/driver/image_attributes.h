// How large arrays, textures and surfaces may be. Pure.
#pragma once

namespace fargpu::sim {

// False: not an attribute of these.
bool image_attribute(int id, int* value);

}  // namespace fargpu::sim
