// Calls for memory that name no stream.
#include <unistd.h>

#include <initializer_list>

#include "bench/driver_waits/cases.h"

namespace driver_waits {
namespace {

constexpr Size k4Kibibytes{"4 KiB", 4096};

Life allocation(Size size) {
  return {CALL(cuMemAlloc, size.name, &world.memory, size.bytes),
          CALL(cuMemFree, size.name, world.memory)};
}

Life host_allocation(Size size, unsigned flags) {
  return {CALL(cuMemHostAlloc, size.name, &world.host_memory, size.bytes, flags),
          CALL(cuMemFreeHost, size.name, world.host_memory)};
}

Life registration(Size size, unsigned flags) {
  const std::string name = title(size.name, flags != 0 ? "mapped" : "");
  return {CALL(cuMemHostRegister, name, world.unregistered, size.bytes,
               CU_MEMHOSTREGISTER_PORTABLE | flags),
          CALL(cuMemHostUnregister, name, world.unregistered)};
}

CUresult export_physical(World& world) {
  int file = -1;
  const CUresult result = cuMemExportToShareableHandle(&file, world.handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result == CUDA_SUCCESS) ::close(file);
  return result;
}

CUresult touch(World& world) {
  *const_cast<volatile char*>(world.managed) = 1;
  return CUDA_SUCCESS;
}

std::vector<Life> allocations() {
  const Step free_unasked = unasked(CALL(cuMemFree, "", world.memory));
  const Step allocate_in_pool =
      unasked(CALL(cuMemAllocAsync, "", &world.memory, 4096, world.other));
  return {
      allocation({"512 B", 512}),
      allocation(k4Kibibytes),
      allocation(kMebibyte),
      allocation({"256 MiB", 256 << 20}),
      {CALL(cuMemAllocPitch, "", &world.memory, &world.bytes, 1000, 1000, 4), free_unasked},
      {CALL(cuMemAllocManaged, "", &world.memory, 1 << 20, CU_MEM_ATTACH_GLOBAL),
       CALL(cuMemFree, "of managed memory", world.memory)},
      {allocate_in_pool, CALL(cuMemFree, "of a pool's memory", world.memory)},
      {allocate_in_pool, while_held(CALL(cuMemFreeAsync, "", world.memory, world.held)),
       CALL(cuMemAllocAsync, "after a free in the held stream", &world.memory, 4096, world.other),
       free_unasked},
      host_allocation(k4Kibibytes, CU_MEMHOSTALLOC_DEVICEMAP),
      host_allocation(kMebibyte, 0),
      host_allocation({"64 MiB", 64 << 20}, 0),
      registration(k4Kibibytes, 0),
      registration(k4Kibibytes, CU_MEMHOSTREGISTER_DEVICEMAP),
      registration({"128 KiB", 128 << 10}, 0),
      registration({"128 KiB", 128 << 10}, CU_MEMHOSTREGISTER_DEVICEMAP),
      registration({"4 MiB", 4 << 20}, 0),
      registration({"4 MiB", 4 << 20}, CU_MEMHOSTREGISTER_DEVICEMAP),
  };
}

std::vector<Life> pools_and_mappings() {
  const Step create = CALL(cuMemPoolCreate, "", &world.new_pool, &world.pool_properties);
  const Step allocate = unasked(
      CALL(cuMemAllocFromPoolAsync, "", &world.memory, 32 << 20, world.new_pool, world.other));
  const Step free = unasked(CALL(cuMemFreeAsync, "", world.memory, world.other));
  const Step keep = unasked(CALL(cuMemPoolSetAttribute, "", world.new_pool,
                                 CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &world.kept_bytes));
  const Step destroy = CALL(cuMemPoolDestroy, "", world.new_pool);
  return {{create, allocate, free,
           CALL(cuMemPoolGetAttribute, "", world.new_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                &world.pool_bytes),
           destroy},
          {unasked(create), keep, allocate, free, CALL(cuMemPoolTrimTo, "", world.new_pool, 0),
           unasked(destroy)},
          {CALL(cuMemCreate, "", &world.handle, kMappingBytes, &world.physical_memory, 0),
           {"cuMemExportToShareableHandle", export_physical},
           CALL(cuMemAddressReserve, "", &world.memory, kMappingBytes, 0, 0, 0),
           CALL(cuMemMap, "", world.memory, kMappingBytes, 0, world.handle, 0),
           CALL(cuMemSetAccess, "", world.memory, kMappingBytes, &world.writable, 1),
           CALL(cuMemSetAccess, "again", world.memory, kMappingBytes, &world.readable, 1),
           CALL(cuMemUnmap, "", world.memory, kMappingBytes),
           CALL(cuMemAddressFree, "", world.memory, kMappingBytes),
           CALL(cuMemRelease, "", world.handle)}};
}

std::vector<Life> uses() {
  const auto advise = [](CUmem_advise advice) {
    return CALL(cuMemAdvise, "", world.managed_address, kBufferBytes, advice, world.on_device);
  };
  return {{advise(CU_MEM_ADVISE_SET_READ_MOSTLY), unasked(advise(CU_MEM_ADVISE_UNSET_READ_MOSTLY))},
          {unasked(CALL(cuMemPrefetchAsync, "", world.managed_address, kBufferBytes,
                        world.on_device, 0, world.other)),
           {"the host touches managed memory", touch}},
          {CALL(cuMemRangeGetAttribute, "", &world.number, sizeof world.number,
                CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, world.managed_address, kBufferBytes)},
          {CALL(cuMemHostGetDevicePointer, "", &world.memory, world.registered, 0)},
          {CALL(cuPointerGetAttribute, "", &world.number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                world.device_memory)},
          {CALL(cuPointerSetAttribute, "", &world.off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                world.device_memory)},
          {CALL(cuMemGetInfo, "", &world.bytes, &world.more_bytes)},
          {CALL(cuMemGetAddressRange, "", &world.memory, &world.bytes, world.device_memory + 5)},
          {CALL(cuIpcGetMemHandle, "", &world.ipc_handle, world.device_memory)},
          {CALL(cuMemcpyHtoD, "pageable 4 B", world.device_memory, world.pageable, 4)},
          {CALL(cuMemcpyHtoD, "pageable 1 MiB", world.device_memory, world.pageable, 1 << 20)},
          {CALL(cuMemcpyDtoH, "pinned 4 B", world.pinned, world.device_memory, 4)},
          {CALL(cuMemcpyDtoD, "", world.device_memory, world.more_device_memory, 1 << 20)},
          {CALL(cuMemsetD8, "", world.device_memory, 1, 1 << 20)},
          {CALL(cuDeviceGraphMemTrim, "", world.device)}};
}

}  // namespace

std::vector<Life> memory_lives() { return joined({allocations(), pools_and_mappings(), uses()}); }

}  // namespace driver_waits
