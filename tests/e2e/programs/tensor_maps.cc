// Tensor maps of many shapes: each is the same whenever and wherever it is made, and two that
// differ in anything given are not.
#include <cuda.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "driver_check.h"

namespace {

struct Shape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  cuuint32_t rank = 3;
  uint64_t address = 0x7f0000000000;
  std::array<cuuint64_t, 5> sizes{64, 32, 16, 8, 4};
  std::array<cuuint64_t, 4> strides{256, 8192, 131072, 1048576};
  std::array<cuuint32_t, 5> box{16, 4, 2, 2, 2}, steps{1, 1, 1, 1, 1};
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};

// Each differs from the first in one thing.
std::vector<Shape> shapes() {
  std::vector<Shape> all(1);
  const auto add = [&all](auto change) { change(all.emplace_back()); };
  add([](Shape& shape) { shape.type = CU_TENSOR_MAP_DATA_TYPE_UINT64; });
  add([](Shape& shape) { shape.address += 16; });
  for (const cuuint32_t rank : {1, 2, 4, 5}) add([=](Shape& shape) { shape.rank = rank; });
  for (size_t i = 0; i < 3; ++i) {
    add([=](Shape& shape) { shape.sizes[i] += 4; });
    add([=](Shape& shape) { shape.box[i] *= 2; });
    if (i > 0) add([=](Shape& shape) { shape.strides[i - 1] *= 2; });
    if (i > 0) add([=](Shape& shape) { shape.steps[i] = 2; });
  }
  add([](Shape& shape) { shape.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; });
  add([](Shape& shape) { shape.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; });
  return all;
}

CUresult encode(const Shape& shape, std::string* bytes) {
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  const CUresult result = cuTensorMapEncodeTiled(
      &map, shape.type, shape.rank, reinterpret_cast<void*>(shape.address), shape.sizes.data(),
      shape.strides.data(), shape.box.data(), shape.steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, shape.fill);
  bytes->assign(reinterpret_cast<const char*>(&map), sizeof map);
  return result;
}

}  // namespace

int main() {
  CHECK(cuInit(0));
  CUcontext first = nullptr, second = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&first, 0));
  CHECK(cuCtxCreate(&second, nullptr, 0, 0));
  const std::vector<Shape> all = shapes();
  std::vector<std::string> maps(all.size());
  std::set<std::string> different;
  for (const CUcontext context : {first, first, second}) {
    CHECK(cuCtxSetCurrent(context));
    for (size_t i = 0; i < all.size(); ++i) {
      std::string bytes;
      CHECK(encode(all[i], &bytes));
      if (maps[i].empty()) maps[i] = bytes;
      if (maps[i] != bytes) return std::printf("map %zu changed\n", i), 1;
      different.insert(bytes);
    }
  }
  if (different.size() != all.size())
    return std::printf("%zu maps of %zu shapes\n", different.size(), all.size()), 1;
  CHECK(cuCtxSetCurrent(nullptr));
  std::string bytes;
  if (encode(all[0], &bytes) != CUDA_ERROR_INVALID_CONTEXT)
    return std::printf("a map without a context\n"), 1;
  std::printf("tensor_maps: right\n");
  return 0;
}
