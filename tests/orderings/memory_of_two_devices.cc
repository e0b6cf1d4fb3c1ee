// run: --memory 1G
// Memory belongs to the device that was named for it, whatever context is current when it is made,
// used or given back: physical memory behind mappings, and memory of pools.
#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr int kRounds = 40;  // more than the limit above allows to be lost

CUcontext contexts[2];

size_t free_bytes_of(int device) {
  CU(cuCtxSetCurrent(contexts[device]));
  CU(cuCtxSynchronize());
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  return free;
}

void expect_free(const char* what, int device, size_t before, size_t taken) {
  constexpr size_t kTolerance = size_t{48} << 20;
  const size_t now = free_bytes_of(device);
  if (now + taken + kTolerance < before || before + kTolerance < now + taken)
    wrong("%s: device %d had %zu MiB free, and %zu MiB with %zu MiB taken", what, device,
          before >> 20, now >> 20, taken >> 20);
}

CUmemGenericAllocationHandle create_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemGenericAllocationHandle handle;
  CU(cuMemCreate(&handle, kBytes, &properties, 0));
  return handle;
}

void test_physical_memory(const size_t* before) {
  for (int round = 0; round < kRounds; ++round) {
    step("physical memory made and released under the other device's context");
    const int device = round % 2;
    CU(cuCtxSetCurrent(contexts[1 - device]));
    const auto handle = create_on(device);
    if (round < 2) expect_free("physical memory", device, before[device], kBytes);
    if (round < 2) expect_free("physical memory", 1 - device, before[1 - device], 0);
    CU(cuCtxSetCurrent(contexts[round / 2 % 2]));
    CU(cuMemRelease(handle));
  }
  for (int round = 0; round < kRounds; ++round) {
    step("a mapping that outlives its handle");
    const int device = round % 2;
    CU(cuCtxSetCurrent(contexts[device]));
    const auto handle = create_on(device);
    CUdeviceptr range = 0;
    CU(cuMemAddressReserve(&range, kBytes, 0, 0, 0));
    CU(cuMemMap(range, kBytes, 0, handle, 0));
    CU(cuMemRelease(handle));
    if (round < 2) expect_free("mapped memory", device, before[device], kBytes);
    CU(cuCtxSetCurrent(contexts[1 - device]));
    CU(cuMemUnmap(range, kBytes));
    CU(cuMemAddressFree(range, kBytes));
  }
}

void test_pool(const size_t* before) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemoryPool pool;
  CU(cuMemPoolCreate(&pool, &properties));
  for (int round = 0; round < kRounds; ++round) {
    step("memory of the second device's pool in a stream of the first");
    CU(cuCtxSetCurrent(contexts[0]));
    CUdeviceptr memory;
    CU(cuMemAllocFromPoolAsync(&memory, kBytes, pool, nullptr));
    if (round == 0) expect_free("memory of a pool", 1, before[1], kBytes);
    if (round == 0) expect_free("memory of a pool", 0, before[0], 0);
    CU(cuCtxSetCurrent(contexts[0]));
    CU(cuMemFreeAsync(memory, nullptr));
    CU(cuCtxSynchronize());
  }
  CU(cuMemPoolDestroy(pool));
}

}  // namespace

int main() {
  begin();
  if (device_count() < 2) {
    note("there is one device only");
    right();
  }
  size_t before[2];
  for (int device = 0; device < 2; ++device) {
    contexts[device] = use_primary(device);
    CU(cuMemFree(device_memory(1 << 20)));
  }
  for (int device = 0; device < 2; ++device) before[device] = free_bytes_of(device);
  test_physical_memory(before);
  test_pool(before);
  for (int device = 0; device < 2; ++device) expect_free("in the end", device, before[device], 0);
  right();
}
