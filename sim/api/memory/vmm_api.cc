// Virtual memory management.
#include "sim/context/primary_context.h"
#include "sim/driver/address_space.h"
#include "sim/driver/physical_memory.h"
#include "sim/memory/shared_file.h"
#include "sim/memory/shared_pool.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

// Memory on a device. CUDA_ERROR_NOT_SUPPORTED: on the host, or to be shared otherwise than by a
// file descriptor.
CUresult device_of(Driver& driver, const CUmemAllocationProp* properties, Device** device) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    const bool known = properties->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                       properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                       properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *device = driver.device(properties->location.id);
  return *device != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

bool valid_access(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags option) {
  return with_driver([&](Driver&) -> CUresult {
    if (granularity == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kMappingGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t address = 0;
    if (!driver.settings().wanted_addresses) addr = 0;
    if (CUresult result = driver.addresses().reserve(size, alignment, addr, &address);
        result != CUDA_SUCCESS) {
      return result;
    }
    *ptr = address;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return with_driver([&](Driver& driver) { return driver.addresses().free(ptr, size); });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr || size == 0 || size % kMappingGranularity != 0 || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    Device* device = nullptr;
    if (CUresult result = device_of(driver, prop, &device); result != CUDA_SUCCESS) return result;
    auto memory = PhysicalMemory::create(*device, size, *prop);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = memory->retain(memory);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto memory = driver.registry().find<PhysicalMemory>(handle);
    return memory && memory->release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto memory = driver.registry().find<PhysicalMemory>(handle);
    if (!memory || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    // It is for arrays.
    if (memory->properties().allocFlags.usage == CU_MEM_CREATE_USAGE_TILE_POOL)
      return CUDA_ERROR_INVALID_VALUE;
    return driver.addresses().map(ptr, size, offset, std::move(memory));
  });
}

// Waits first, so that no kernel is still using the mapping.
// Waits, as some drivers may; no known one has others wait for that.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> current;
    if (current_context(&current) == CUDA_SUCCESS) current->synchronize();
    if (const auto memory = driver.addresses().mapped(ptr)) {
      const auto primary = PrimaryContext::of(memory->device()).get();
      if (primary && primary != current) primary->synchronize();
    }
    return driver.addresses().unmap(ptr, size);
  });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                size_t count) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const CUmemLocation& location = desc[i].location;
      if (location.type == CU_MEM_LOCATION_TYPE_HOST ||
          location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
      if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !valid_access(desc[i].flags) ||
          driver.device(location.id) == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
      const CUresult result =
          driver.addresses().set_access(ptr, size, desc[i].location.id, desc[i].flags);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || driver.device(location->id) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    if (const auto found = driver.allocations().find(ptr);
        found && found->kind == Allocation::Kind::kManaged) {
      *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      return CUDA_SUCCESS;
    }
    return driver.addresses().access(ptr, location->id, flags);
  });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                        CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto memory = driver.registry().find<PhysicalMemory>(handle);
    if (prop == nullptr || !memory) return CUDA_ERROR_INVALID_VALUE;
    *prop = memory->properties();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto memory = driver.addresses().mapped(reinterpret_cast<uint64_t>(addr));
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    *handle = memory->retain(memory);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareableHandle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto memory = driver.registry().find<PhysicalMemory>(handle);
    if (shareableHandle == nullptr || !memory || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !memory->is_shareable()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int descriptor = memory->export_descriptor();
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareableHandle) = descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                void* osHandle,
                                                CUmemAllocationHandleType shHandleType) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      const bool of_windows =
          shHandleType == CU_MEM_HANDLE_TYPE_WIN32 || shHandleType == CU_MEM_HANDLE_TYPE_WIN32_KMT;
      return of_windows ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
    auto file = SharedFile::open(descriptor);
    if (!file.ok()) {
      if (file.status().code() != fargpu::StatusCode::kInvalidArgument)
        return CUDA_ERROR_OPERATING_SYSTEM;
      return SharedPool::open(descriptor).ok() ? CUDA_ERROR_NOT_SUPPORTED : no_export(descriptor);
    }
    for (const auto& device : driver.devices()) {
      if (device->index() != file->index()) continue;
      const auto memory = PhysicalMemory::import(*device, std::move(*file));
      *handle = memory->retain(memory);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}
