// Devices: answered from the snapshot.
#include <algorithm>
#include <cstring>

#include "client/manual/common.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

CUresult find(CUdevice dev, const Device** device) {
  *device = Process::get().device(dev);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Process::get().device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Process::get().device_count();
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetName(char* name, int len, CUdevice dev) {
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  const size_t n = std::min(device->name.size(), static_cast<size_t>(len) - 1);
  std::memcpy(name, device->name.data(), n);
  name[n] = '\0';
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  std::memcpy(uuid->bytes, device->uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  if (!device->has_luid) return CUDA_ERROR_NOT_SUPPORTED;
  std::memcpy(luid, device->luid.data(), device->luid.size());
  *deviceNodeMask = device->luid_node_mask;
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  *bytes = device->total_bytes;
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t all = 0;
  const CUresult result = manual_cuDeviceTotalMem_v2(&all, dev);
  if (result == CUDA_SUCCESS) *bytes = static_cast<unsigned int>(std::min<size_t>(all, UINT32_MAX));
  return result;
}

CUresult manual_cuDeviceGetNvSciSyncAttributes(void* nvSciSyncAttrList, CUdevice dev, int flags) {
  constexpr int kFlags = CUDA_NVSCISYNC_ATTR_SIGNAL | CUDA_NVSCISYNC_ATTR_WAIT;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  return nvSciSyncAttrList == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult manual_cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const auto id = static_cast<size_t>(attrib);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  if (id >= Device::kAttributes || !device->known.test(id)) return CUDA_ERROR_INVALID_VALUE;
  *pi = device->attributes[id];
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  const auto value = [&](CUdevice_attribute id) { return device->attribute(id); };
  prop->maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop->maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop->maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop->maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop->maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop->maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop->maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  prop->sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  *major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult manual_cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // "[domain]:[bus]:[device].[function]", "[domain]:[bus]:[device]" or "[bus]:[device].[function]",
  // hexadecimal.
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int used = 0;
  const auto whole = [&](int fields, int wanted) {
    return fields >= wanted && pciBusId[used] == '\0';
  };
  const bool parsed =
      whole(std::sscanf(pciBusId, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &used), 4) ||
      whole(std::sscanf(pciBusId, "%x:%x:%x%n", &domain, &bus, &slot, &used), 3) ||
      (domain = 0, whole(std::sscanf(pciBusId, "%x:%x.%x%n", &bus, &slot, &function, &used), 3));
  if (!parsed) return CUDA_ERROR_INVALID_VALUE;
  for (CUdevice i = 0; const Device* device = Process::get().device(i); ++i) {
    if (device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == static_cast<int>(domain) &&
        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == static_cast<int>(bus) &&
        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == static_cast<int>(slot)) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult manual_cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  if (pciBusId == nullptr || len < 13) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult result = find(dev, &device); result != CUDA_SUCCESS) return result;
  std::snprintf(pciBusId, static_cast<size_t>(len), "%s", device->pci_bus_id.c_str());
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
