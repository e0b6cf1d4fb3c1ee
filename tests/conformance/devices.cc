// Devices and their properties; everything before cuInit.
#include <cctype>

#include "tests/conformance/conformance.h"

int main() {
  int count = -1, version = 0, value = 0;
  CUdevice device = 0;
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuDeviceGet(&device, 0));
  SHOW(cuDriverGetVersion(nullptr));
  SHOW(cuDriverGetVersion(&version));
  VALUE(version);
  SHOW(cuInit(1));
  SHOW(cuInit(0));
  SHOW(cuInit(0));
  SHOW(cuDeviceGetCount(nullptr));
  SHOW(cuDeviceGetCount(&count));
  VALUE(count);
  SHOW(cuDeviceGet(&device, -1));
  SHOW(cuDeviceGet(&device, count));
  SHOW(cuDeviceGet(nullptr, 0));

  for (int ordinal = 0; ordinal < count; ++ordinal) {
    SHOW(cuDeviceGet(&device, ordinal));
    char name[100] = "", short_name[6] = "";
    SHOW(cuDeviceGetName(name, sizeof(name), device));
    std::printf("  name %s\n", name);
    SHOW(cuDeviceGetName(short_name, sizeof(short_name), device));
    std::printf("  short name %s\n", short_name);
    SHOW(cuDeviceGetName(nullptr, 10, device));
    CUuuid uuid;
    SHOW(cuDeviceGetUuid(&uuid, device));
    for (char byte : uuid.bytes) std::printf("%02x", static_cast<unsigned char>(byte));
    std::printf("\n");
    size_t bytes = 0;
    SHOW(cuDeviceTotalMem(&bytes, device));
    VALUE(bytes);
    char bus[20] = "";
    SHOW(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
    std::printf("  bus %s\n", bus);
    CUdevice found = -1;
    SHOW(cuDeviceGetByPCIBusId(&found, bus));
    VALUE(found);
    cuuint64_t graph_bytes = 1;
    SHOW(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &graph_bytes));
    VALUE(graph_bytes);
    SHOW(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, nullptr));
    SHOW(cuDeviceGetGraphMemAttribute(-1, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &graph_bytes));
    int major = 0, minor = 0;
    SHOW(cuDeviceComputeCapability(&major, &minor, device));
    VALUE(10 * major + minor);
    const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                             CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                             CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
                                             CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                             CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                             CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
                                             CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
                                             CU_DEVICE_ATTRIBUTE_WARP_SIZE,
                                             CU_DEVICE_ATTRIBUTE_MAX_PITCH,
                                             CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
                                             CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
                                             CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
                                             CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                             CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
                                             CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                             CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                             CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                             CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
                                             CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
                                             CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH};
    for (CUdevice_attribute attribute : attributes) {
      CUresult result = cuDeviceGetAttribute(&value, attribute, device);
      std::printf("  attribute %d: %s %d\n", static_cast<int>(attribute), error_name(result),
                  value);
    }
  }
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  SHOW(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0));
  SHOW(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, count));
  SHOW(cuDeviceGetByPCIBusId(&device, "ffff:ff:ff.0"));
  SHOW(cuDeviceCanAccessPeer(&value, 0, count - 1));
  VALUE(value);

  SHOW(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                  CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  CUcontext context;
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  for (int target : {0, 1}) {
    for (int scope : {0, 100, 200, 300}) {
      SHOW(cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(target),
                                      static_cast<CUflushGPUDirectRDMAWritesScope>(scope)));
    }
  }
  CUmemDecompressParams params{};
  size_t wrong = 9;
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0));
  VALUE(value);
  SHOW(cuMemBatchDecompressAsync(&params, 1, 0, &wrong, nullptr));
  SHOW(cuMemBatchDecompressAsync(nullptr, 1, 1, &wrong, nullptr));
  VALUE(wrong);
  NEED(cuDevicePrimaryCtxRelease(0));

  const char* text = nullptr;
  for (int code : {0, 1, 2, 100, 201, 400, 700, 719, 999}) {
    cuGetErrorString(static_cast<CUresult>(code), &text);
    std::printf("%d: %s, %s\n", code, error_name(static_cast<CUresult>(code)),
                text == nullptr ? "(null)" : text);
  }
  SHOW(cuGetErrorName(static_cast<CUresult>(12345), &text));
  SHOW(cuGetErrorString(static_cast<CUresult>(12345), &text));
  return 0;
}
