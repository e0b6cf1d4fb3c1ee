// A texture or surface object that is destroyed behind a launch is still there for its kernel,
// although the kernel waits for its turn.
#include <cstdint>
#include <iterator>

#include "tests/orderings/check.h"

namespace {

constexpr int kElements = 64;

CUdeviceptr numbers(int first) {
  int values[kElements];
  for (int i = 0; i < kElements; ++i) values[i] = first + i;
  const CUdeviceptr memory = device_memory(sizeof values);
  CU(cuMemcpyHtoD(memory, values, sizeof values));
  return memory;
}

CUarray array_of(CUdeviceptr memory) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = kElements;
  shape.Format = CU_AD_FORMAT_SIGNED_INT32;
  shape.NumChannels = 1;
  shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  CUarray array;
  CU(cuArray3DCreate(&array, &shape));
  CU(cuMemcpyDtoA(array, 0, memory, kElements * sizeof(int)));
  CU(cuCtxSynchronize());  // the copy is the default stream's, for which the others do not wait
  return array;
}

CUDA_RESOURCE_DESC in_memory(CUdeviceptr memory) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = CU_AD_FORMAT_SIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = kElements * sizeof(int);
  return resource;
}

CUDA_RESOURCE_DESC in_array(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

CUtexObject texture_of(const CUDA_RESOURCE_DESC& resource) {
  CUDA_TEXTURE_DESC reading{};
  reading.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject texture;
  CU(cuTexObjectCreate(&texture, &resource, &reading, nullptr));
  return texture;
}

CUsurfObject surface_of(const CUDA_RESOURCE_DESC& resource) {
  CUsurfObject surface;
  CU(cuSurfObjectCreate(&surface, &resource));
  return surface;
}

struct Way {
  const char* name;
  const char* kernel;
  uint64_t (*make)(const CUDA_RESOURCE_DESC&);
  CUresult (*destroy)(uint64_t);
  bool of_array;
};
constexpr Way kWays[] = {
    {"a texture of memory", "read_linear_texture",
     [](const CUDA_RESOURCE_DESC& resource) -> uint64_t { return texture_of(resource); },
     [](uint64_t object) { return cuTexObjectDestroy(object); }, false},
    {"a texture of an array", "read_array_texture",
     [](const CUDA_RESOURCE_DESC& resource) -> uint64_t { return texture_of(resource); },
     [](uint64_t object) { return cuTexObjectDestroy(object); }, true},
    {"a surface", "read_surface",
     [](const CUDA_RESOURCE_DESC& resource) -> uint64_t { return surface_of(resource); },
     [](uint64_t object) { return cuSurfObjectDestroy(object); }, true},
};

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule module = load_kernels();
  const CUfunction spin = kernel_of(module, "spin");
  const CUstream streams[] = {make_stream(), make_stream()};
  const CUdeviceptr results = device_memory(sizeof(int) * std::size(streams));
  for (const Way& way : kWays) {
    const CUfunction read = kernel_of(module, way.kernel);
    for (int round = 0; round < 5; ++round) {
      step(way.name);
      CU(cuMemsetD32(results, 0xffffffff, std::size(streams)));
      const CUdeviceptr memory = numbers(1000 * round);
      CUarray array = way.of_array ? array_of(memory) : nullptr;
      const uint64_t object = way.make(way.of_array ? in_array(array) : in_memory(memory));
      for (size_t i = 0; i < std::size(streams); ++i) {
        CU(launch(spin, streams[i], microseconds(0.03 * (1 + static_cast<double>(i)))));
        CU(launch(read, streams[i], results + i * sizeof(int), object, 7 + static_cast<int>(i)));
      }
      CU(way.destroy(object));
      CU(cuCtxSynchronize());
      int seen[std::size(streams)];
      CU(cuMemcpyDtoH(seen, results, sizeof seen));
      for (size_t i = 0; i < std::size(streams); ++i) {
        const int due = 1000 * round + 7 + static_cast<int>(i);
        if (seen[i] != due) wrong("%s, round %d: %d, not %d", way.name, round, seen[i], due);
      }
      if (array != nullptr) CU(cuArrayDestroy(array));
      CU(cuMemFree(memory));
    }
  }
  right();
}
