#include "server/memory/pool_reserves.h"

#include <algorithm>

#include "generated/server/driver_table.h"

namespace fargpu::server {

void PoolReserves::add(CUmemoryPool pool, size_t device) {
  if (device < devices_.size() && driver_.cuMemPoolGetAttribute != nullptr &&
      std::ranges::find(devices_[device].pools, pool, &Pool::handle) ==
          devices_[device].pools.end())
    devices_[device].pools.push_back({pool});
}

void PoolReserves::use_default(size_t device) {
  if (devices_[device].has_default || driver_.cuDeviceGetDefaultMemPool == nullptr) return;
  CUmemoryPool pool = nullptr;
  if (driver_.cuDeviceGetDefaultMemPool(&pool, static_cast<CUdevice>(device)) == CUDA_SUCCESS)
    add(pool, device);
  devices_[device].has_default = true;
}

uint64_t PoolReserves::reserved(const Pool& pool) const {
  cuuint64_t bytes = 0;
  const CUresult result =
      driver_.cuMemPoolGetAttribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : 0;
}

CUresult PoolReserves::destroy(CUmemoryPool pool, size_t device) {
  auto& pools = devices_[device].pools;
  const auto found = std::ranges::find(pools, pool, &Pool::handle);
  CUmemoryPool standard = nullptr, current = nullptr;
  const auto number = static_cast<CUdevice>(device);
  if (found == pools.end() ||
      driver_.cuDeviceGetDefaultMemPool(&standard, number) != CUDA_SUCCESS || pool == standard)
    return driver_.cuMemPoolDestroy(pool);
  cuuint64_t nothing = 0;
  driver_.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing);
  driver_.cuMemPoolTrimTo(pool, 0);
  if (reserved(*found) == 0) {
    pools.erase(found);
    return driver_.cuMemPoolDestroy(pool);
  }
  found->ending = true;
  if (driver_.cuDeviceGetMemPool(&current, number) == CUDA_SUCCESS && current == pool)
    driver_.cuDeviceSetMemPool(number, standard);
  return CUDA_SUCCESS;
}

uint64_t PoolReserves::reserved(size_t device) {
  uint64_t sum = 0;
  std::erase_if(devices_[device].pools, [&](const Pool& pool) {
    if (pool.ending) driver_.cuMemPoolTrimTo(pool.handle, 0);
    const uint64_t bytes = reserved(pool);
    sum += bytes;
    const bool ends = pool.ending && bytes == 0;
    if (ends) driver_.cuMemPoolDestroy(pool.handle);
    return ends;
  });
  return sum;
}

uint64_t PoolReserves::reserved_by_graphs(size_t device) const {
  cuuint64_t bytes = 0;
  if (!devices_[device].has_graphs || driver_.cuDeviceGetGraphMemAttribute == nullptr) return 0;
  const CUresult result = driver_.cuDeviceGetGraphMemAttribute(
      static_cast<CUdevice>(device), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : 0;
}

void PoolReserves::trim(size_t device) const {
  if (devices_[device].has_graphs && driver_.cuDeviceGraphMemTrim != nullptr)
    driver_.cuDeviceGraphMemTrim(static_cast<CUdevice>(device));
  for (const Pool& pool : devices_[device].pools) driver_.cuMemPoolTrimTo(pool.handle, 0);
}

}  // namespace fargpu::server
