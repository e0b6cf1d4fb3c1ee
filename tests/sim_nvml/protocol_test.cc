// NVML's ways with texts, lists, versions of structs, and structs that have grown.
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/sim_nvml/library.h"

namespace fargpu::sim_nvml {
namespace {

class Protocol : public Nvml {};

TEST_F(Protocol, TextsThatDoNotFit) {
  const std::string uuid = text("nvmlDeviceGetUUID");
  const auto size = static_cast<unsigned>(uuid.size());
  std::vector<char> buffer(size + 1, 'x');
  const auto ask = [&](char* out, unsigned length) {
    return call<nvmlDevice_t, char*, unsigned>("nvmlDeviceGetUUID", device(), out, length);
  };
  EXPECT_EQ(ask(buffer.data(), size), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(buffer[0], 'x');
  EXPECT_EQ(ask(nullptr, size), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ask(buffer.data(), size + 1), NVML_SUCCESS);
  EXPECT_EQ(uuid, buffer.data());
}

TEST_F(Protocol, ListsThatDoNotFit) {
  const auto ask = [](unsigned* count, unsigned* clocks) {
    return call<nvmlDevice_t, unsigned, unsigned*, unsigned*>(
        "nvmlDeviceGetSupportedGraphicsClocks", device(), 1000, count, clocks);
  };
  unsigned count = 0;
  EXPECT_EQ(ask(&count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 3U);
  unsigned clocks[4] = {1, 1, 1, 1};
  count = 2;
  EXPECT_EQ(ask(&count, clocks), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(clocks[0], 1U);
  count = 4;
  EXPECT_EQ(ask(&count, clocks), NVML_SUCCESS);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(clocks[0], 1000U);
  EXPECT_EQ(clocks[3], 1U);
  EXPECT_EQ(ask(&count, nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ask(nullptr, clocks), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(Protocol, EmptyLists) {
  unsigned count = 5;
  nvmlProcessInfo_t infos[5];
  const auto ask = [&](nvmlProcessInfo_t* list) {
    return call<nvmlDevice_t, unsigned*, nvmlProcessInfo_t*>(
        "nvmlDeviceGetComputeRunningProcesses_v3", device(), &count, list);
  };
  EXPECT_EQ(ask(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ask(infos), NVML_SUCCESS);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(ask(nullptr), NVML_SUCCESS);
}

TEST_F(Protocol, Versions) {
  nvmlMemory_v2_t memory{};
  const auto ask = [&](nvmlMemory_v2_t* out) {
    return call<nvmlDevice_t, nvmlMemory_v2_t*>("nvmlDeviceGetMemoryInfo_v2", device(), out);
  };
  EXPECT_EQ(ask(&memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  memory.version = sizeof(memory) | 3U << 24;
  EXPECT_EQ(ask(&memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(memory.total, 0U);
  EXPECT_EQ(ask(nullptr), NVML_ERROR_INVALID_ARGUMENT);
  memory.version = nvmlMemory_v2;
  EXPECT_EQ(ask(&memory), NVML_SUCCESS);
  EXPECT_EQ(memory.version, nvmlMemory_v2);
  EXPECT_EQ(memory.total, 512U << 20);
}

TEST_F(Protocol, AnOlderVersionIsNotWrittenPastItsEnd) {
  struct {
    nvmlGpuFabricInfo_v2_t info;
    unsigned char behind;
  } older{.info = {}, .behind = 0xaa};
  older.info.version = nvmlGpuFabricInfo_v2;
  older.info.state = 9;
  EXPECT_EQ((call<nvmlDevice_t, nvmlGpuFabricInfo_v2_t*>("nvmlDeviceGetGpuFabricInfoV", device(),
                                                         &older.info)),
            NVML_SUCCESS);
  EXPECT_EQ(older.info.state, NVML_GPU_FABRIC_STATE_NOT_SUPPORTED);
  EXPECT_EQ(older.info.version, nvmlGpuFabricInfo_v2);
  EXPECT_EQ(older.behind, 0xaa);
}

TEST_F(Protocol, OlderNamesWriteOlderStructs) {
  const auto newest = get<nvmlPciInfo_t>("nvmlDeviceGetPciInfo_v3");
  for (const auto& [name, size] :
       {std::pair{"nvmlDeviceGetPciInfo", sizeof(nvmlPciInfo_v1_t)},
        {"nvmlDeviceGetPciInfo_v2", offsetof(nvmlPciInfo_v2_t, reserved)}}) {
    std::vector<unsigned char> bytes(sizeof(nvmlPciInfo_t), 0xaa);
    EXPECT_EQ((call<nvmlDevice_t, void*>(name, device(), bytes.data())), NVML_SUCCESS);
    EXPECT_EQ(std::memcmp(bytes.data(), &newest, size), 0) << name;
    EXPECT_EQ(bytes[size], 0xaa) << name;
  }
}

TEST_F(Protocol, EventsNeverCome) {
  nvmlEventSet_t set = nullptr;
  ASSERT_EQ(call<nvmlEventSet_t*>("nvmlEventSetCreate", &set), NVML_SUCCESS);
  const auto listen = [&](unsigned long long types) {
    return call<nvmlDevice_t, unsigned long long, nvmlEventSet_t>("nvmlDeviceRegisterEvents",
                                                                  device(), types, set);
  };
  EXPECT_EQ(listen(nvmlEventTypeXidCriticalError), NVML_SUCCESS);
  EXPECT_EQ(listen(1ULL << 60), NVML_ERROR_NOT_SUPPORTED);
  nvmlEventData_t data{};
  const auto wait = [&] {
    return call<nvmlEventSet_t, nvmlEventData_t*, unsigned>("nvmlEventSetWait_v2", set, &data, 1);
  };
  EXPECT_EQ(wait(), NVML_ERROR_TIMEOUT);
  EXPECT_EQ(call<nvmlEventSet_t>("nvmlEventSetFree", set), NVML_SUCCESS);
  EXPECT_EQ(wait(), NVML_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace fargpu::sim_nvml
