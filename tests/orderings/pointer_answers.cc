// What a pointer is: a thread without a context may ask (PyTorch's pinning thread does), a pool is
// named by the handle that its device has, mapped memory lies on the device that it was made for
// whatever context is current, and what was set is read back. An attribute that does not exist is
// an invalid value.
#include <thread>

#include "check.h"

namespace {

template <typename Value>
Value ask(CUpointer_attribute attribute, CUdeviceptr pointer) {
  Value value{};
  CU(cuPointerGetAttribute(&value, attribute, pointer));
  return value;
}

template <typename Value>
Value ask_together(CUpointer_attribute attribute, CUdeviceptr pointer) {
  Value value{};
  void* place = &value;
  CU(cuPointerGetAttributes(1, &attribute, &place, pointer));
  return value;
}

void without_context(CUdeviceptr device, CUdeviceptr pinned) {
  step("questions without a current context");
  std::thread([&] {
    CUcontext current = nullptr;
    CU(cuCtxGetCurrent(&current));
    HOLDS(current == nullptr);
    HOLDS(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device) == CU_MEMORYTYPE_DEVICE);
    HOLDS(ask_together<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned) == CU_MEMORYTYPE_HOST);
    static int pageable;
    const auto unknown = reinterpret_cast<CUdeviceptr>(&pageable);
    HOLDS(ask_together<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown) == 0);
    unsigned type = 0;
    HOLDS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown) ==
          CUDA_ERROR_INVALID_VALUE);
  }).join();
}

void unknown_attributes(CUdeviceptr device) {
  step("attributes that do not exist");
  for (const int number : {0, 1000}) {
    auto attribute = static_cast<CUpointer_attribute>(number);
    unsigned long long value = 0;
    void* place = &value;
    HOLDS(cuPointerGetAttribute(&value, attribute, device) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(cuPointerGetAttributes(1, &attribute, &place, device) == CUDA_ERROR_INVALID_VALUE);
  }
}

void synchronous_operations(CUdeviceptr device) {
  step("SYNC_MEMOPS");
  for (const unsigned wanted : {1u, 0u}) {
    CU(cuPointerSetAttribute(&wanted, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    HOLDS(ask<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device) == wanted);
  }
}

CUmemoryPool pool_of(CUdeviceptr memory) {
  return ask<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory);
}

void pools(CUdeviceptr device) {
  step("pools");
  CUmemoryPool of_device = nullptr;
  CUmemoryPool own = nullptr;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr third = 0;
  CU(cuMemAllocAsync(&first, 4096, nullptr));
  CU(cuDeviceGetDefaultMemPool(&of_device, 0));
  CU(cuMemPoolCreate(&own, &props));
  CU(cuMemAllocFromPoolAsync(&second, 4096, own, nullptr));
  CU(cuDeviceSetMemPool(0, own));
  CU(cuMemAllocAsync(&third, 4096, nullptr));
  CU(cuDeviceSetMemPool(0, of_device));
  HOLDS(pool_of(first) == of_device);
  HOLDS(pool_of(second) == own);
  HOLDS(pool_of(third) == own);
  HOLDS(pool_of(device) == nullptr);
  for (const CUdeviceptr memory : {first, second, third}) CU(cuMemFreeAsync(memory, nullptr));
  CU(cuCtxSynchronize());
  CU(cuMemPoolDestroy(own));
}

// Memory of the last device, asked for with a context of the first one.
void devices(int last) {
  step("devices");
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = last;
  constexpr size_t kBytes = 2 << 20;
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr range = 0;
  CU(cuMemCreate(&physical, kBytes, &prop, 0));
  CU(cuMemAddressReserve(&range, 2 * kBytes, 0, 0, 0));
  CU(cuMemMap(range, kBytes, 0, physical, 0));
  HOLDS(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, range + 100) == last);
  HOLDS(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + 100) == range);
  CU(cuMemUnmap(range, kBytes));
  CU(cuMemAddressFree(range, 2 * kBytes));
  CU(cuMemRelease(physical));

  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = last;
  CUmemoryPool pool = nullptr;
  CUdeviceptr memory = 0;
  CU(cuMemPoolCreate(&pool, &props));
  CU(cuMemAllocFromPoolAsync(&memory, 4096, pool, nullptr));
  HOLDS(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory) == last);
  CU(cuMemFreeAsync(memory, nullptr));
  CU(cuCtxSynchronize());
  CU(cuMemPoolDestroy(pool));
}

void freed(CUdeviceptr device) {
  step("freed memory");
  CU(cuMemFree(device));
  unsigned type = 0;
  HOLDS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device) ==
        CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main() {
  begin();
  const int count = device_count();
  if (count < 2) note("one device only: devices are not told apart");
  use_primary();
  const CUdeviceptr device = device_memory(1 << 16);
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 8192, 0));
  without_context(device, reinterpret_cast<CUdeviceptr>(pinned));
  unknown_attributes(device);
  synchronous_operations(device);
  pools(device);
  devices(count - 1);
  freed(device);
  CU(cuMemFreeHost(pinned));
  right();
}
