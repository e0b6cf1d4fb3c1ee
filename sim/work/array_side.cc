#include "sim/work/array_side.h"

#include "sim/driver/driver.h"
#include "sim/object/array.h"

namespace fargpu::sim {

CUresult set_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, const Copy& copy,
                   CopySide* side) {
  // Copies are described before anything else is looked at.
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = Driver::get().registry().find<Array>(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (array->is_planar()) return CUDA_ERROR_INVALID_VALUE;
  const Image& image = array->image();
  const Image::Level& level = image.levels.front();
  const uint64_t element = image.format.element_bytes();
  const auto inside = [](uint64_t from, uint64_t count, uint64_t size) {
    return count <= size && from <= size - count;
  };
  if (!copy.empty() &&
      (x % element != 0 || copy.width % element != 0 ||
       !inside(x, copy.width, level.width * element) || !inside(y, copy.height, level.height) ||
       !inside(z, copy.depth, level.depth)))
    return CUDA_ERROR_INVALID_VALUE;
  *side = {CopySide::Where::kArray,
           level.base + z * level.slice + y * level.pitch + x,
           level.pitch,
           level.slice,
           array,
           handle,
           x,
           y,
           z,
           level.tiles};
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim
