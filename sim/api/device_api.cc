// Initialisation, version, device enumeration, identity, attributes, and what two devices can do
// with each other.
#include <algorithm>
#include <cstring>

#include "sim/api/checkpoint.h"
#include "sim/api/driver_version.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

struct Notification {
  static constexpr ObjectKind kKind = ObjectKind::kNotification;
  int device;  // ordinal
};

}  // namespace

CUresult CUDAAPI cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return guarded([] {
    const CUresult result = Driver::initialize();
    if (result == CUDA_SUCCESS) Checkpoint::start();
    return result;
  });
}

CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = driver_version();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(driver.devices().size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int len, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t length = std::min(device.name().size(), static_cast<size_t>(len) - 1);
    std::memcpy(name, device.name().data(), length);
    name[length] = '\0';
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Uuid bytes = device.uuid();
    std::memcpy(uuid->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return cuDeviceGetUuid_v2(uuid, dev);
}

// Only Windows has LUIDs.
CUresult CUDAAPI cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  return with_device(dev, [&](Device&) -> CUresult {
    if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = static_cast<unsigned int>(std::min<size_t>(device.memory().total(), UINT32_MAX));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetNvSciSyncAttributes(void* nvSciSyncAttrList, CUdevice dev, int flags) {
  constexpr int kFlags = CUDA_NVSCISYNC_ATTR_SIGNAL | CUDA_NVSCISYNC_ATTR_WAIT;
  return with_device(dev, [&](Device&) {
    if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    return nvSciSyncAttrList == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
  });
}

// Notifications that never come. The handle says of which device it is.
CUresult CUDAAPI cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc,
                                                   void*, CUasyncCallbackHandle* callback) {
  return with_device(device, [&](Device& found) -> CUresult {
    if (callbackFunc == nullptr || callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_shared<Notification>(Notification{found.ordinal()});
    *callback = to_handle<CUasyncCallbackHandle>(Driver::get().registry().add(std::move(made), 0));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceUnregisterAsyncNotification(CUdevice device,
                                                     CUasyncCallbackHandle callback) {
  return with_device(device, [&](Device& found) -> CUresult {
    Registry& registry = Driver::get().registry();
    const auto known = registry.find<Notification>(callback);
    if (!known || known->device != found.ordinal()) return CUDA_ERROR_INVALID_VALUE;
    registry.remove<Notification>(callback);
    return CUDA_SUCCESS;
  });
}

// Writes of other devices are in memory when they are done.
CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                            CUflushGPUDirectRDMAWritesScope scope) {
  return with_context([&](Context&) {
    const bool known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                       (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                        scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.memory().total();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return device.attribute(static_cast<int>(attrib), pi);
  });
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = device.compute_capability() / 10;
    *minor = device.compute_capability() % 10;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *prop = CUdevprop{};
    prop->maxThreadsPerBlock = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; ++i) {
      prop->maxThreadsDim[i] = device.attribute(
          static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
      prop->maxGridSize[i] =
          device.attribute(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    prop->sharedMemPerBlock = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    prop->totalConstantMemory = device.attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    prop->memPitch = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    prop->clockRate = device.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = device.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    const std::string id = device.pci_bus_id();
    if (pciBusId == nullptr || len <= static_cast<int>(id.size())) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(pciBusId, id.c_str(), id.size() + 1);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    const bool parsed =
        std::sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4 ||
        (domain = function = 0, std::sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) == 3) ||
        (function = 0, std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) == 3);
    if (!parsed) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& device : driver.devices()) {
      const auto device_bus =
          static_cast<unsigned>(device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
      if (domain != 0 || slot != 0 || function != 0 || bus != device_bus) continue;
      *dev = device->ordinal();
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  return with_device(dev, [&](Device&) -> CUresult {
    if (pi == nullptr || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attr,
                                              void* value) {
  return with_device(ordinal, [&](Device& device) -> CUresult {
    if (value == nullptr || attr < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
        attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
      return CUDA_ERROR_INVALID_VALUE;
    cuuint64_t bytes = 0;
    const CUresult result = device.graph_memory().get(attr, &bytes);
    std::memcpy(value, &bytes, sizeof(bytes));
    return result;
  });
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attr,
                                              void* value) {
  return with_device(ordinal, [&](Device& device) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    cuuint64_t bytes = 0;
    std::memcpy(&bytes, value, sizeof(bytes));
    return device.graph_memory().set(attr, bytes);
  });
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) -> CUresult {
    device.graph_memory().trim();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(dev) == nullptr || driver.device(peerDev) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib,
                                         CUdevice srcDevice, CUdevice dstDevice) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(srcDevice) == nullptr || driver.device(dstDevice) == nullptr ||
        srcDevice == dstDevice) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (static_cast<int>(attrib)) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = 1;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        break;
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}
