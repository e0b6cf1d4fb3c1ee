// What a pointer is.
#include "sim/driver/address_space.h"
#include "sim/driver/physical_memory.h"
#include "sim/driver/pool.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

template <typename T>
CUresult put(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUmemorytype memory_type(const Allocation& allocation) {
  return allocation.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

CUresult host_pointer(const Allocation& allocation, uint64_t address, void* data) {
  const bool on_host = allocation.is_host() || allocation.kind == Allocation::Kind::kManaged;
  return on_host ? put(data, reinterpret_cast<void*>(address)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult access_flags(Driver& driver, const Allocation& allocation, void* data) {
  std::shared_ptr<Context> context;
  if (CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const auto range = context->memory().find(allocation.base, 1);
  return put(data, !range            ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE
                   : range->writable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                     : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ);
}

// The range of mapped memory is that of its addresses, as they were reserved.
std::pair<uint64_t, uint64_t> range_of(Driver& driver, const Allocation& allocation) {
  if (allocation.kind == Allocation::Kind::kMapped)
    return driver.addresses().reservation(allocation.base);
  return {allocation.base, allocation.bytes};
}

CUresult attribute_of(Driver& driver, const Allocation& allocation, uint64_t address,
                      CUpointer_attribute attribute, void* data) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, to_handle<CUcontext>(allocation.pool != 0 ? 0 : allocation.context_handle));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, memory_type(allocation));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, static_cast<CUdeviceptr>(address));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host_pointer(allocation, address, data);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(data,
                 static_cast<unsigned>(allocation.sync_memops.value_or(!allocation.is_host())));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(allocation.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, static_cast<unsigned>(allocation.kind == Allocation::Kind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, allocation.device);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, static_cast<unsigned>(allocation.kind == Allocation::Kind::kDevice &&
                                             allocation.pool == 0));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, static_cast<unsigned>(allocation.kind == Allocation::Kind::kDevice &&
                                             allocation.pool == 0 && !allocation.graph &&
                                             !allocation.opened));
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, static_cast<CUdeviceptr>(range_of(driver, allocation).first));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<size_t>(range_of(driver, allocation).second));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, static_cast<CUdeviceptr>(allocation.base));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, static_cast<size_t>(allocation.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: {
      const auto mapped = driver.addresses().mapped(address);
      const auto pool =
          allocation.pool == 0 ? nullptr : driver.registry().find<Pool>(allocation.pool);
      if (pool && pool->shared() && !pool->is_import())
        return put(data, static_cast<unsigned long long>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
      return put(data, static_cast<unsigned long long>(
                           mapped ? mapped->properties().requestedHandleTypes : 0));
    }
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return access_flags(driver, allocation, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, to_handle<CUmemoryPool>(allocation.pool));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, static_cast<unsigned long long>(allocation.buffer_id));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes answers for memory that CUDA does not know.
CUresult default_of(Driver& driver, CUdeviceptr ptr, CUpointer_attribute attribute, void* data) {
  const auto reserved = driver.addresses().reservation(ptr);
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, static_cast<CUcontext>(nullptr));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, static_cast<CUdeviceptr>(reserved.first));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<size_t>(reserved.second));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, static_cast<CUdeviceptr>(0));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return put(data, driver.allocations().find(ptr) ? CUdeviceptr{0} : ptr);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, static_cast<unsigned long long>(0));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, size_t{0});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, -2);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, static_cast<CUmemoryPool>(nullptr));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(data, 0u);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto found = driver.allocations().find(ptr);
    if (data == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(driver, *found, ptr, attribute, data);
  });
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                        void** data, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (numAttributes == 0 || attributes == nullptr || data == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const auto found = driver.allocations().find(ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        // In a query of several attributes it is true only if the program has set it, but for
        // managed memory.
        const bool managed = found && found->kind == Allocation::Kind::kManaged;
        put(data[i], static_cast<unsigned>(found && found->sync_memops.value_or(managed)));
        continue;
      }
      // An attribute that this memory does not have gets its default; one that does not exist is an
      // error.
      if (found && attribute_of(driver, *found, ptr, attributes[i], data[i]) == CUDA_SUCCESS)
        continue;
      if (CUresult result = default_of(driver, ptr, attributes[i], data[i]); result != CUDA_SUCCESS)
        return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                       CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
      return CUDA_ERROR_INVALID_VALUE;
    const bool on = *static_cast<const unsigned*>(value) != 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver.allocations().for_range(ptr, 1, [&](Allocation& allocation) {
      const bool possible = allocation.kind != Allocation::Kind::kMapped;
      if (possible) allocation.sync_memops = on;
      result = possible ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
      return true;
    });
    return result;
  });
}
