// Tensor maps: tiled ones without interleaving. What they may be is what an H200 takes; the others
// are not simulated.
#include <bit>
#include <cstring>

#include "sim/exec/tensor_map.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

uint8_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return type >= 0 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ ? 4 : 0;
  }
}

// Sizes, strides, the box and its steps. False: CUDA does not allow them.
bool fill_in(TensorMap& map, const cuuint64_t* size, const cuuint64_t* strides,
             const cuuint32_t* box, const cuuint32_t* steps) {
  constexpr uint64_t kMostSize = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
  constexpr uint32_t kMostStep = 8;
  for (unsigned d = 0; d < map.rank; ++d) {
    if (size[d] == 0 || size[d] > kMostSize || box[d] == 0 || box[d] > TensorMap::kMostBox ||
        steps[d] == 0 || steps[d] > kMostStep) {
      return false;
    }
    map.size[d] = static_cast<uint32_t>(size[d] - 1);
    map.box[d] = static_cast<uint16_t>(box[d]);
    map.step[d] = static_cast<uint8_t>(d == 0 ? 1 : steps[d]);  // the first one's is ignored
    map.strides[d] = map.element_bytes;
    if (d == 0) continue;
    if (strides[d - 1] % 16 != 0 || strides[d - 1] >= kMostStride) return false;
    map.strides[d] = strides[d - 1];
  }
  return map.box[0] * map.element_bytes % 16 == 0;
}

}  // namespace

CUresult CUDAAPI cuTensorMapEncodeTiled(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    const cuuint32_t* boxDim, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  return with_context([&](Context&) -> CUresult {
    const auto address = reinterpret_cast<uint64_t>(globalAddress);
    const bool floats = tensorDataType >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    TensorMap map;
    map.mark = TensorMap::kMark;
    map.address = address;
    map.element_bytes = element_bytes(tensorDataType);
    map.swizzle_bits = static_cast<uint8_t>(swizzle);
    map.fill = oobFill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ? 0 : 0xff;  // not a number
    if (tensorMap == nullptr || map.element_bytes == 0 || tensorRank == 0 ||
        tensorRank > TensorMap::kMostRank || address % 16 != 0 || globalDim == nullptr ||
        (globalStrides == nullptr && tensorRank > 1) || boxDim == nullptr ||
        elementStrides == nullptr || swizzle < CU_TENSOR_MAP_SWIZZLE_NONE ||
        swizzle > CU_TENSOR_MAP_SWIZZLE_128B || l2Promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE ||
        l2Promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        oobFill < CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        oobFill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (map.fill != 0 && !floats)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
      const bool known = interleave > 0 && interleave <= CU_TENSOR_MAP_INTERLEAVE_32B;
      return known && tensorRank >= 3 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    map.rank = static_cast<uint8_t>(tensorRank);
    if (!fill_in(map, globalDim, globalStrides, boxDim, elementStrides))
      return CUDA_ERROR_INVALID_VALUE;
    // The inner side of the box fits into what is swizzled: 32, 64 or 128 bytes.
    if (map.swizzle_bits != 0 && map.box[0] * map.element_bytes > 16 << map.swizzle_bits)
      return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(tensorMap, &map, sizeof map);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  return with_context([&](Context&) -> CUresult {
    const auto address = reinterpret_cast<uint64_t>(globalAddress);
    if (tensorMap == nullptr || address == 0 || address % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    auto map = std::bit_cast<TensorMap>(*tensorMap);
    map.address = address;
    std::memcpy(tensorMap, &map, sizeof map);
    return CUDA_SUCCESS;
  });
}
