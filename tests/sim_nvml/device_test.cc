// The GPUs are those of the simulated driver.
#include <cuda.h>

#include <cstring>
#include <string>

#include "tests/sim_nvml/library.h"

namespace fargpu::sim_nvml {
namespace {

class Devices : public Nvml {
 protected:
  // The simulated driver: cu("cuDeviceGetName", ...).
  template <typename... Parameters>
  static void cu(const char* name, std::type_identity_t<Parameters>... arguments) {
    static void* driver = dlopen(FARGPU_SIM, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(driver, nullptr) << dlerror();
    auto* function = reinterpret_cast<CUresult (*)(Parameters...)>(dlsym(driver, name));
    ASSERT_NE(function, nullptr) << name;
    ASSERT_EQ(function(arguments...), CUDA_SUCCESS) << name;
  }
};

TEST_F(Devices, AreThoseOfTheDriver) {
  cu<unsigned>("cuInit", 0);
  int devices = 0;
  cu<int*>("cuDeviceGetCount", &devices);
  unsigned count = 0;
  ASSERT_EQ(call<unsigned*>("nvmlDeviceGetCount_v2", &count), NVML_SUCCESS);
  ASSERT_EQ(count, 3U);
  ASSERT_EQ(devices, 3);
  for (unsigned i = 0; i < count; ++i) {
    const int ordinal = static_cast<int>(i);
    char name[96] = "", place[32] = "";
    CUuuid uuid{};
    size_t bytes = 0;
    int major = 0, minor = 0;
    cu<char*, int, CUdevice>("cuDeviceGetName", name, sizeof(name), ordinal);
    cu<char*, int, CUdevice>("cuDeviceGetPCIBusId", place, sizeof(place), ordinal);
    cu<CUuuid*, CUdevice>("cuDeviceGetUuid_v2", &uuid, ordinal);
    cu<size_t*, CUdevice>("cuDeviceTotalMem_v2", &bytes, ordinal);
    cu<int*, int*, CUdevice>("cuDeviceComputeCapability", &major, &minor, ordinal);

    EXPECT_EQ(text("nvmlDeviceGetName", i), name);
    const auto pci = get<nvmlPciInfo_t>("nvmlDeviceGetPciInfo_v3", i);
    EXPECT_STREQ(pci.busIdLegacy, place);
    EXPECT_EQ(pci.busId, "0000" + std::string(place));
    const auto memory = get<nvmlMemory_t>("nvmlDeviceGetMemoryInfo", i);
    EXPECT_EQ(memory.total, bytes);
    EXPECT_EQ(memory.free, bytes);
    EXPECT_EQ(memory.used, 0U);
    int of_nvml[2] = {};
    EXPECT_EQ((call<nvmlDevice_t, int*, int*>("nvmlDeviceGetCudaComputeCapability", device(i),
                                              &of_nvml[0], &of_nvml[1])),
              NVML_SUCCESS);
    EXPECT_EQ(of_nvml[0], major);
    EXPECT_EQ(of_nvml[1], minor);

    nvmlUUID_t binary{.version = nvmlUUID_v1, .type = NVML_UUID_TYPE_BINARY, .value = {}};
    std::memcpy(binary.value.bytes, uuid.bytes, sizeof(binary.value.bytes));
    nvmlDevice_t found = nullptr;
    EXPECT_EQ(
        (call<const nvmlUUID_t*, nvmlDevice_t*>("nvmlDeviceGetHandleByUUIDV", &binary, &found)),
        NVML_SUCCESS);
    EXPECT_EQ(found, device(i));
  }
}

TEST_F(Devices, AreFoundByWhatTheySay) {
  for (unsigned i = 0; i < 3; ++i) {
    const std::string uuid = text("nvmlDeviceGetUUID", i), serial = text("nvmlDeviceGetSerial", i);
    const auto pci = get<nvmlPciInfo_t>("nvmlDeviceGetPciInfo_v3", i);
    for (const auto& [name, key] : {std::pair{"nvmlDeviceGetHandleByUUID", uuid.c_str()},
                                    {"nvmlDeviceGetHandleBySerial", serial.c_str()},
                                    {"nvmlDeviceGetHandleByPciBusId_v2", pci.busId},
                                    {"nvmlDeviceGetHandleByPciBusId", pci.busIdLegacy}}) {
      nvmlDevice_t found = nullptr;
      EXPECT_EQ((call<const char*, nvmlDevice_t*>(name, key, &found)), NVML_SUCCESS) << name;
      EXPECT_EQ(found, device(i)) << name;
      EXPECT_EQ((call<const char*, nvmlDevice_t*>(name, nullptr, &found)),
                NVML_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(get<unsigned>("nvmlDeviceGetIndex", i), i);
    EXPECT_EQ(get<unsigned>("nvmlDeviceGetMinorNumber", i), i);
  }
  nvmlDevice_t found = nullptr;
  EXPECT_EQ((call<const char*, nvmlDevice_t*>("nvmlDeviceGetHandleByUUID", "GPU-0", &found)),
            NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(
      (call<const char*, nvmlDevice_t*>("nvmlDeviceGetHandleByPciBusId_v2", "0:1:0.0", &found)),
      NVML_ERROR_NOT_FOUND);
  EXPECT_EQ((call<const char*, nvmlDevice_t*>("nvmlDeviceGetHandleByPciBusId_v2", "here", &found)),
            NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ((call<unsigned, nvmlDevice_t*>("nvmlDeviceGetHandleByIndex_v2", 3, &found)),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(Devices, WrongHandlesAreRefused) {
  unsigned index = 0;
  for (nvmlDevice_t wrong :
       {nvmlDevice_t{nullptr}, reinterpret_cast<nvmlDevice_t>(&index),
        reinterpret_cast<nvmlDevice_t>(reinterpret_cast<uintptr_t>(device()) + 1)}) {
    EXPECT_EQ((call<nvmlDevice_t, unsigned*>("nvmlDeviceGetIndex", wrong, &index)),
              NVML_ERROR_INVALID_ARGUMENT);
  }
}

TEST_F(Devices, LieOnOneHostWithoutNvlink) {
  nvmlGpuTopologyLevel_t level{};
  EXPECT_EQ((call<nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t*>(
                "nvmlDeviceGetTopologyCommonAncestor", device(0), device(2), &level)),
            NVML_SUCCESS);
  EXPECT_EQ(level, NVML_TOPOLOGY_NODE);
  nvmlGpuP2PStatus_t status{};
  for (const auto& [index, expected] :
       {std::pair{NVML_P2P_CAPS_INDEX_READ, NVML_P2P_STATUS_OK},
        {NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_NOT_SUPPORTED}}) {
    EXPECT_EQ((call<nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t*>(
                  "nvmlDeviceGetP2PStatus", device(0), device(1), index, &status)),
              NVML_SUCCESS);
    EXPECT_EQ(status, expected);
    EXPECT_EQ((call<nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t*>(
                  "nvmlDeviceGetP2PStatus", device(1), device(1), index, &status)),
              NVML_SUCCESS);
    EXPECT_EQ(status, NVML_P2P_STATUS_OK);
  }
  unsigned count = 0;
  nvmlDevice_t others[2] = {};
  const auto ask = [&](nvmlDevice_t* list) {
    return call<nvmlDevice_t, nvmlGpuTopologyLevel_t, unsigned*, nvmlDevice_t*>(
        "nvmlDeviceGetTopologyNearestGpus", device(1), NVML_TOPOLOGY_NODE, &count, list);
  };
  EXPECT_EQ(ask(nullptr), NVML_SUCCESS);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(ask(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ask(others), NVML_SUCCESS);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(others[0], device(0));
  EXPECT_EQ(others[1], device(2));
}

}  // namespace
}  // namespace fargpu::sim_nvml
