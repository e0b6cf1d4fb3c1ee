// The world's memory: of the device, of pools, mapped, of the host.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/conformance/answers/answers.h"
#include "tests/conformance/answers/made.h"

namespace answers {
namespace {

constexpr size_t kHostBytes = 64 << 10;
constexpr size_t kMappedBytes = 2 << 20;

CUmemGenericAllocationHandle make_physical() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  need("cuMemCreate", &handle, kMappedBytes, static_cast<const CUmemAllocationProp*>(&prop), 0ull);
  return handle;
}

CUdeviceptr make_reserved() {
  CUdeviceptr address = 0;
  need("cuMemAddressReserve", &address, kMappedBytes, size_t{0}, CUdeviceptr{0}, 0ull);
  return address;
}

void* make_pages() {
  void* pages =
      mmap(nullptr, kHostBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) std::abort();
  std::memset(pages, 0, kHostBytes);
  return pages;
}

}  // namespace

CUmemGenericAllocationHandle World::physical() {
  MADE(CUmemGenericAllocationHandle, "physical", make_physical());
}
CUdeviceptr World::reserved() { MADE(CUdeviceptr, "reserved", make_reserved()); }

CUdeviceptr World::memory() {
  if (!can()) return 0;
  uint64_t& kept = slot("memory");
  if (kept == 0) {
    CUdeviceptr address = 0;
    need("cuMemAlloc_v2", &address, size_t{1} << 20);
    need("cuMemsetD8_v2", address, static_cast<unsigned char>(1), size_t{1} << 20);
    kept = address;
  }
  return kept;
}

CUdeviceptr World::pool_memory() {
  if (!can()) return 0;
  uint64_t& kept = slot("pool_memory");
  if (kept == 0) {
    CUdeviceptr address = 0;
    need("cuMemAllocAsync", &address, size_t{4096}, CUstream{});
    need("cuCtxSynchronize");
    kept = address;
  }
  return kept;
}

CUdeviceptr World::mapped() {
  if (!can()) return 0;
  uint64_t& kept = slot("mapped");
  if (kept == 0) {
    const CUdeviceptr address = make_reserved();
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    need("cuMemMap", address, kMappedBytes, size_t{0}, make_physical(), 0ull);
    need("cuMemSetAccess", address, kMappedBytes, static_cast<const CUmemAccessDesc*>(&access),
         size_t{1});
    kept = address;
  }
  return kept;
}

void* World::pageable() {
  uint64_t& kept = slot("pageable");
  if (kept == 0) kept = reinterpret_cast<uint64_t>(make_pages());
  return reinterpret_cast<void*>(kept);
}

void* World::pinned() {
  if (!can()) return pageable();
  uint64_t& kept = slot("pinned");
  if (kept == 0) {
    void* memory = nullptr;
    if (need("cuMemHostAlloc", &memory, kHostBytes,
             static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP)))
      std::memset(memory, 0, kHostBytes);
    kept = reinterpret_cast<uint64_t>(memory);
  }
  return reinterpret_cast<void*>(kept);
}

void* World::registered() {
  if (!can()) return pageable();
  uint64_t& kept = slot("registered");
  if (kept == 0) {
    void* memory = make_pages();
    need("cuMemHostRegister_v2", memory, kHostBytes,
         static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP));
    kept = reinterpret_cast<uint64_t>(memory);
  }
  return reinterpret_cast<void*>(kept);
}

CUmemGenericAllocationHandle World::destroyed(CUmemGenericAllocationHandle) {
  const CUmemGenericAllocationHandle made = make_physical();
  need("cuMemRelease", made);
  return made;
}

}  // namespace answers
