// Sparse arrays and mipmapped arrays: memory comes and goes tile by tile, in stream order.
#include "tests/conformance/conformance.h"

namespace {

constexpr size_t kPool = 2u << 20;
constexpr uint64_t kTile = 64u << 10;

CUmemGenericAllocationHandle make_memory(unsigned short usage) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.allocFlags.usage = usage;
  CUmemGenericAllocationHandle memory = 0;
  NEED(cuMemCreate(&memory, kPool, &properties, 0));
  return memory;
}

size_t used() {
  size_t free = 0, total = 0;
  NEED(cuMemGetInfo(&free, &total));
  return total - free;
}

CUDA_ARRAY3D_DESCRIPTOR describe(size_t width, size_t height, size_t depth, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = width;
  d.Height = height;
  d.Depth = depth;
  d.Format = CU_AD_FORMAT_FLOAT;
  d.NumChannels = 1;
  d.Flags = flags | CUDA_ARRAY3D_SPARSE;
  return d;
}

// One tile of level 0, at tile (x, y); memory 0: nothing there any more.
struct Tiles {
  CUarray array = nullptr;
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};

  CUarrayMapInfo at(unsigned x, unsigned y, CUmemGenericAllocationHandle memory,
                    uint64_t offset) const {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    auto& level = info.subresource.sparseLevel;
    level.offsetX = x * properties.tileExtent.width;
    level.offsetY = y * properties.tileExtent.height;
    level.extentWidth = properties.tileExtent.width;
    level.extentHeight = properties.tileExtent.height;
    level.extentDepth = 1;
    info.memOperationType = memory != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = memory;
    info.offset = offset;
    info.deviceBitMask = 1;
    return info;
  }
};

CUDA_MEMCPY2D piece(CUarray array, size_t x, size_t y, float* host, size_t width, size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = width * sizeof(float);
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstXInBytes = x * sizeof(float);
  copy.dstY = y;
  copy.WidthInBytes = width * sizeof(float);
  copy.Height = height;
  return copy;
}

void put(CUarray array, size_t x, size_t y, size_t width, size_t height, float value) {
  std::vector<float> host(width * height);
  for (size_t i = 0; i < host.size(); ++i) host[i] = value + static_cast<float>(i % 7);
  const CUDA_MEMCPY2D copy = piece(array, x, y, host.data(), width, height);
  SHOW(cuMemcpy2D(&copy));
}

void get(CUarray array, size_t x, size_t y, size_t width, size_t height) {
  std::vector<float> host(width * height, -1);
  CUDA_MEMCPY2D copy = piece(array, x, y, host.data(), width, height);
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.dstHost = host.data();
  copy.dstPitch = copy.srcPitch;
  copy.srcArray = array;
  copy.srcXInBytes = copy.dstXInBytes;
  copy.srcY = copy.dstY;
  copy.dstXInBytes = copy.dstY = 0;
  NEED(cuMemcpy2D(&copy));
  std::printf("  at %zu, %zu: %08x, %g .. %g\n", x, y, checksum(host), host.front(), host.back());
}

void show_properties(const CUDA_ARRAY_SPARSE_PROPERTIES& p) {
  std::printf("  tiles of %u x %u x %u, tail from %u, %llu bytes, flags %u\n", p.tileExtent.width,
              p.tileExtent.height, p.tileExtent.depth, p.miptailFirstLevel, p.miptailSize, p.flags);
}

void tiles(CUstream stream) {
  std::puts("tiles");
  const size_t before = used();
  Tiles tiles;
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(1024, 1024, 0, 0);
  NEED(cuArray3DCreate(&tiles.array, &d));
  SHOW(cuArrayGetSparseProperties(&tiles.properties, tiles.array));
  show_properties(tiles.properties);
  VALUE(used() == before);
  const unsigned width = tiles.properties.tileExtent.width;
  const CUmemGenericAllocationHandle pool = make_memory(CU_MEM_CREATE_USAGE_TILE_POOL);
  VALUE(used() - before);

  get(tiles.array, 0, 0, 8, 8);
  put(tiles.array, 0, 0, 8, 8, 5);
  get(tiles.array, 0, 0, 8, 8);  // there was nothing to write to
  CUarrayMapInfo two[2] = {tiles.at(0, 0, pool, 0), tiles.at(1, 0, pool, kTile)};
  SHOW(cuMemMapArrayAsync(two, 2, stream));
  SHOW(cuStreamSynchronize(stream));
  // Across both tiles and beyond.
  put(tiles.array, width - 4, 2, 8, 4, 10);
  put(tiles.array, 2 * width - 4, 2, 8, 4, 30);
  get(tiles.array, width - 4, 2, 8, 4);
  get(tiles.array, 2 * width - 4, 2, 8, 4);
  // The same memory in two places.
  CUarrayMapInfo again = tiles.at(0, 0, pool, kTile);
  SHOW(cuMemMapArrayAsync(&again, 1, stream));
  SHOW(cuStreamSynchronize(stream));
  get(tiles.array, 0, 2, 8, 4);
  get(tiles.array, width, 2, 8, 4);
  put(tiles.array, 0, 2, 8, 4, 50);
  get(tiles.array, width, 2, 8, 4);

  // It stays while a tile lies in it.
  SHOW(cuMemRelease(pool));
  VALUE(used() - before);
  get(tiles.array, width, 2, 8, 4);
  CUarrayMapInfo none = tiles.at(0, 0, 0, 0);
  SHOW(cuMemMapArrayAsync(&none, 1, stream));
  SHOW(cuStreamSynchronize(stream));
  get(tiles.array, 0, 2, 8, 4);
  get(tiles.array, width, 2, 8, 4);
  VALUE(used() - before);
  none = tiles.at(1, 0, 0, 0);
  SHOW(cuMemMapArrayAsync(&none, 1, stream));
  SHOW(cuStreamSynchronize(stream));
  get(tiles.array, width, 2, 8, 4);
  SHOW(cuArrayDestroy(tiles.array));
  SHOW(cuCtxSynchronize());
  VALUE(used() == before);
}

void wrong_calls(CUstream stream) {
  std::puts("wrong calls");
  const size_t before = used();
  Tiles tiles;
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(1024, 1024, 0, 0);
  NEED(cuArray3DCreate(&tiles.array, &d));
  NEED(cuArrayGetSparseProperties(&tiles.properties, tiles.array));
  const CUmemGenericAllocationHandle pool = make_memory(CU_MEM_CREATE_USAGE_TILE_POOL);
  const CUmemGenericAllocationHandle plain = make_memory(0);
  const CUarrayMapInfo right = tiles.at(0, 0, pool, 0);
  SHOW(cuMemMapArrayAsync(nullptr, 0, stream));
  SHOW(cuMemMapArrayAsync(nullptr, 1, stream));
  const auto wrong = [&](const char* what, auto&& change) {
    CUarrayMapInfo info = right;
    change(info);
    std::printf("%s: %s\n", what, error_name(cuMemMapArrayAsync(&info, 1, stream)));
  };
  wrong("plain memory", [&](auto& i) { i.memHandle.memHandle = plain; });
  wrong("width", [](auto& i) { i.subresource.sparseLevel.extentWidth = 3; });
  wrong("place", [](auto& i) { i.subresource.sparseLevel.offsetX = 1; });
  wrong("level", [](auto& i) { i.subresource.sparseLevel.level = 1; });
  wrong("layer", [](auto& i) { i.subresource.sparseLevel.layer = 1; });
  wrong("no device", [](auto& i) { i.deviceBitMask = 0; });
  wrong("another device", [](auto& i) { i.deviceBitMask = 1u << 31; });
  wrong("offset", [](auto& i) { i.offset = 1; });
  wrong("offset behind the memory", [](auto& i) { i.offset = kPool; });
  wrong("flags", [](auto& i) { i.flags = 1; });
  wrong("a tail where none is", [](auto& i) {
    i.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    i.subresource.miptail = {0, 0, kTile};
  });
  wrong("all of it", [&](auto& i) {
    i.subresource.sparseLevel.extentWidth = i.subresource.sparseLevel.extentHeight = 1024;
  });
  CUarrayMapInfo info = right;
  SHOW(cuMemMapArrayAsync(&info, 1, stream));
  SHOW(cuMemRelease(plain));
  SHOW(cuMemRelease(pool));
  VALUE(used() - before);
  SHOW(cuArrayDestroy(tiles.array));
  VALUE(used() == before);
}

void levels(CUstream stream) {
  std::puts("levels");
  const size_t before = used();
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(512, 512, 0, 0);
  CUmipmappedArray mipmap = nullptr;
  NEED(cuMipmappedArrayCreate(&mipmap, &d, 10));
  CUDA_ARRAY_SPARSE_PROPERTIES p{};
  SHOW(cuMipmappedArrayGetSparseProperties(&p, mipmap));
  show_properties(p);
  const CUmemGenericAllocationHandle pool = make_memory(CU_MEM_CREATE_USAGE_TILE_POOL);
  CUarrayMapInfo infos[2] = {};
  for (CUarrayMapInfo& info : infos) {
    info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    info.resource.mipmap = mipmap;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = pool;
    info.deviceBitMask = 1;
  }
  infos[0].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  infos[0].subresource.sparseLevel.level = 1;
  infos[0].subresource.sparseLevel.extentWidth = p.tileExtent.width;
  infos[0].subresource.sparseLevel.extentHeight = p.tileExtent.height;
  infos[0].subresource.sparseLevel.extentDepth = 1;
  infos[1].subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  infos[1].subresource.miptail.size = p.miptailSize;
  infos[1].offset = kTile;
  SHOW(cuMemMapArrayAsync(infos, 2, stream));
  SHOW(cuStreamSynchronize(stream));
  for (unsigned level = 0; level < 10; ++level) {
    CUarray array = nullptr;
    NEED(cuMipmappedArrayGetLevel(&array, mipmap, level));
    put(array, 0, 0, 1, 1, static_cast<float>(10 + level));
  }
  for (unsigned level = 0; level < 10; ++level) {
    CUarray array = nullptr;
    NEED(cuMipmappedArrayGetLevel(&array, mipmap, level));
    get(array, 0, 0, 1, 1);
  }
  SHOW(cuMemRelease(pool));
  VALUE(used() - before);
  SHOW(cuMipmappedArrayDestroy(mipmap));
  SHOW(cuCtxSynchronize());
  VALUE(used() == before);
}

}  // namespace

int main() {
  CUcontext context = make_context();
  int supported = 0;
  NEED(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0));
  VALUE(supported);
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  tiles(stream);
  wrong_calls(stream);
  levels(stream);
  SHOW(cuStreamDestroy(stream));
  SHOW(cuCtxDestroy(context));
  return 0;
}
