// Stream-ordered allocation and memory pools.
#include "tests/conformance/conformance.h"

int main() {
  make_context();
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemoryPool pool = nullptr, own = nullptr, current = nullptr;
  SHOW(cuDeviceGetDefaultMemPool(&pool, 0));
  SHOW(cuDeviceGetMemPool(&current, 0));
  VALUE(pool == current);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  SHOW(cuMemPoolCreate(&own, &properties));
  cuuint64_t threshold = 1;
  SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  VALUE(threshold);
  threshold = 1 << 22;
  SHOW(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  threshold = 0;
  SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  VALUE(threshold);

  CUdeviceptr a = 0, b = 0;
  SHOW(cuMemAllocAsync(&a, 1 << 16, stream));
  SHOW(cuMemsetD32Async(a, 0xabcd, 1 << 14, stream));
  SHOW(cuMemAllocFromPoolAsync(&b, 1 << 16, own, stream));
  SHOW(cuMemcpyDtoDAsync(b, a, 1 << 16, stream));
  std::vector<unsigned> out(1 << 14);
  SHOW(cuMemcpyDtoHAsync(out.data(), b, 1 << 16, stream));
  SHOW(cuStreamSynchronize(stream));
  long wrong = 0;
  for (unsigned value : out) wrong += value != 0xabcd;
  VALUE(wrong);
  cuuint64_t used = 0;
  SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used >= (1 << 16));
  SHOW(cuMemFreeAsync(a, stream));
  SHOW(cuMemFreeAsync(b, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemPoolTrimTo(own, 0));
  SHOW(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used);
  SHOW(cuMemAllocAsync(&a, 0, stream));
  SHOW(cuMemAllocAsync(nullptr, 16, stream));
  SHOW(cuMemFreeAsync(0x1234, stream));
  SHOW(cuDeviceSetMemPool(0, own));
  SHOW(cuDeviceGetMemPool(&current, 0));
  VALUE(current == own);
  SHOW(cuDeviceSetMemPool(0, pool));
  SHOW(cuMemPoolDestroy(own));
  SHOW(cuMemPoolDestroy(pool));
  return 0;
}
