#include "sim/work/copy_params.h"

#include "sim/work/array_side.h"

namespace fargpu::sim {
namespace {

// One side as the program describes it.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z, pitch, height;
};

CUresult side_of(const Side& given, const Copy& copy, CopySide* side) {
  switch (given.type) {
    case CU_MEMORYTYPE_HOST:
      side->where = CopySide::Where::kHost;
      side->base = reinterpret_cast<uint64_t>(given.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      side->where = CopySide::Where::kDevice;
      side->base = given.device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->where = CopySide::Where::kUnified;
      side->base = given.device;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return set_array(given.array, given.x, given.y, given.z, copy, side);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return place_side(side, given.x, given.y, given.z, given.pitch, given.height, copy)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult set_sides(const Side& from, const Side& to, Copy* copy) {
  const CUresult result = side_of(from, *copy, &copy->from);
  return result == CUDA_SUCCESS ? side_of(to, *copy, &copy->to) : result;
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name these fields alike.
template <typename Params>
CUresult to_copy_3d(const Params& p, Copy* copy) {
  if (p.srcLOD != 0 || p.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  copy->width = p.WidthInBytes;
  copy->height = p.Height;
  copy->depth = p.Depth;
  return set_sides({p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, p.srcXInBytes, p.srcY,
                    p.srcZ, p.srcPitch, p.srcHeight},
                   {p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, p.dstXInBytes, p.dstY,
                    p.dstZ, p.dstPitch, p.dstHeight},
                   copy);
}

}  // namespace

bool place_side(CopySide* side, size_t x, size_t y, size_t z, size_t pitch, size_t rows,
                const Copy& copy) {
  if (copy.empty()) return true;
  size_t least_pitch = 0, least_rows = 0;
  if (__builtin_add_overflow(x, copy.width, &least_pitch) ||
      __builtin_add_overflow(y, copy.height, &least_rows))
    return false;
  side->pitch = pitch != 0 ? pitch : least_pitch;
  if (rows == 0) rows = least_rows;
  if (side->pitch < least_pitch || rows < least_rows) return false;
  if (__builtin_mul_overflow(side->pitch, rows, &side->slice)) return false;
  if (side->base == 0) return true;  // refused later
  const unsigned __int128 start = static_cast<unsigned __int128>(side->base) +
                                  static_cast<unsigned __int128>(z) * side->slice +
                                  static_cast<unsigned __int128>(y) * side->pitch + x;
  if (start > UINT64_MAX) return false;
  side->base = static_cast<uint64_t>(start);
  return true;
}

CUresult to_copy(const CUDA_MEMCPY2D& p, Copy* copy) {
  copy->width = p.WidthInBytes;
  copy->height = p.Height;
  return set_sides({p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, p.srcXInBytes, p.srcY, 0,
                    p.srcPitch, 0},
                   {p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, p.dstXInBytes, p.dstY, 0,
                    p.dstPitch, 0},
                   copy);
}

CUresult to_copy(const CUDA_MEMCPY3D& params, Copy* copy) { return to_copy_3d(params, copy); }

CUresult to_copy(const CUDA_MEMCPY3D_PEER& params, Copy* copy) { return to_copy_3d(params, copy); }

}  // namespace fargpu::sim
