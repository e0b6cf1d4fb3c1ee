// Virtual memory management: reserve, create, map, set access, use, unmap.
#include "tests/conformance/conformance.h"

int main() {
  make_context();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  size_t granularity = 0;
  SHOW(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  VALUE(granularity);
  if (granularity == 0) return 0;
  CUdeviceptr range = 0;
  SHOW(cuMemAddressReserve(&range, 4 * granularity, 0, 0, 0));
  SHOW(cuMemAddressReserve(&range, 0, 0, 0, 0));
  CUmemGenericAllocationHandle first = 0, second = 0;
  SHOW(cuMemCreate(&first, granularity + 1, &properties, 0));
  SHOW(cuMemCreate(&first, granularity, &properties, 0));
  SHOW(cuMemCreate(&second, granularity, &properties, 0));
  SHOW(cuMemMap(range, granularity, 0, first, 0));
  SHOW(cuMemMap(range + granularity, granularity, 0, second, 0));
  SHOW(cuMemMap(range, granularity, 0, second, 0));
  SHOW(cuMemsetD8(range, 1, 16));  // no access yet
  // The same again and again: what failed has not made the memory usable. The other end is mapped.
  static unsigned char other[4096];
  SHOW(cuMemHostRegister(other, sizeof(other), CU_MEMHOSTREGISTER_DEVICEMAP));
  for (int round = 0; round < 2; ++round) {
    SHOW(cuMemcpyHtoD(range, other, 64));
    SHOW(cuCtxSynchronize());
    SHOW(cuMemcpyHtoDAsync(range, other, 64, nullptr));
    SHOW(cuMemcpyDtoHAsync(other, range, 64, nullptr));
    SHOW(cuMemsetD8(range, 1, 16));
    SHOW(cuCtxSynchronize());
  }
  SHOW(cuMemHostUnregister(other));
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SHOW(cuMemSetAccess(range, 2 * granularity, &access, 1));
  unsigned long long flags = 0;
  SHOW(cuMemGetAccess(&flags, &properties.location, range));
  VALUE(flags);
  SHOW(cuMemsetD32(range, 0x11223344, 2 * granularity / 4));
  unsigned value = 0;
  SHOW(cuMemcpyDtoH(&value, range + 2 * granularity - 4, 4));
  VALUE(value);
  // A handle that is asked for is the one that there is, and is released once more.
  CUmemGenericAllocationHandle again = 0;
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + 16)));
  VALUE(again == first);
  SHOW(cuMemRelease(again));
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + 4 * granularity)));
  SHOW(cuMemRelease(second));
  SHOW(cuMemRetainAllocationHandle(&second, reinterpret_cast<void*>(range + granularity)));
  SHOW(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + granularity)));
  VALUE(again == second);
  SHOW(cuMemRelease(again));
  SHOW(cuMemRelease(second));
  SHOW(cuMemRelease(second));
  SHOW(cuMemUnmap(range, granularity));
  SHOW(cuMemUnmap(range + granularity, granularity));
  SHOW(cuMemMap(range + 3 * granularity, granularity, 0, first, 0));
  SHOW(cuMemSetAccess(range + 3 * granularity, granularity, &access, 1));
  SHOW(cuMemcpyDtoH(&value, range + 3 * granularity, 4));
  VALUE(value);  // the memory kept its contents
  SHOW(cuMemUnmap(range + 3 * granularity, granularity));
  SHOW(cuMemRelease(first));
  SHOW(cuMemRelease(first));
  SHOW(cuMemAddressFree(range, 4 * granularity));
  return 0;
}
