// What hand-written halves of NVML show of a GPU that other jobs use too, or that has a neighbour
// which is not the job's.
#include <gtest/gtest.h>

#include <cstring>

#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Handles of the server's GPUs; their buses are their numbers.
nvmlDevice_t gpu(unsigned number) {
  return reinterpret_cast<nvmlDevice_t>(static_cast<uintptr_t>(number));
}
unsigned number_of(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device));
}

// Link n leads to the GPU n; link 9 to a switch.
constexpr unsigned kSwitch = 9;

NvmlTable busy_server() {
  NvmlTable table;
  table.nvmlDeviceGetBAR1MemoryInfo = [](nvmlDevice_t, nvmlBAR1Memory_t* bar1) {
    *bar1 = {256, 200, 56};
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetAttributes_v2 = [](nvmlDevice_t, nvmlDeviceAttributes_t* attributes) {
    *attributes = {};
    attributes->multiprocessorCount = 132;
    attributes->memorySizeMB = 16 << 10;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetConfComputeMemSizeInfo = [](nvmlDevice_t, nvmlConfComputeMemSizeInfo_t* info) {
    *info = {(15 * kGiB) >> 10, kGiB >> 11};
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetConfComputeProtectedMemoryUsage = [](nvmlDevice_t, nvmlMemory_t* memory) {
    *memory = {16 * kGiB, 6 * kGiB, 10 * kGiB};
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetPciInfo_v3 = [](nvmlDevice_t device, nvmlPciInfo_t* pci) {
    *pci = {};
    pci->bus = number_of(device);
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetNvLinkRemotePciInfo_v2 = [](nvmlDevice_t, unsigned link, nvmlPciInfo_t* pci) {
    *pci = {};
    pci->bus = link;
    return NVML_SUCCESS;
  };
  table.nvmlDeviceGetNvLinkRemoteDeviceType = [](nvmlDevice_t, unsigned link,
                                                 nvmlIntNvLinkDeviceType_t* type) {
    *type = link == kSwitch ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
  };
  return table;
}

class NvmlDeskTest : public ::testing::Test {
 protected:
  NvmlTable table_ = busy_server();
  JobMemory memory_ = std::move(*JobMemory::create({2, 4, 4 * kGiB}));
  Desk desk_{table_, {gpu(1), gpu(2)}, memory_, 4 * kGiB, 0};
  Desk unlimited_{table_, {gpu(1), gpu(2)}, memory_, 0, 0};
};

TEST_F(NvmlDeskTest, WhatOthersUseOfTheWindowIsNotShown) {
  nvmlBAR1Memory_t bar1{};
  ASSERT_EQ(manual_nvmlDeviceGetBAR1MemoryInfo(desk_, gpu(1), &bar1), NVML_SUCCESS);
  EXPECT_EQ(bar1.bar1Total, 256u);
  EXPECT_EQ(bar1.bar1Free, 256u);
  EXPECT_EQ(bar1.bar1Used, 0u);
}

TEST_F(NvmlDeskTest, SizesOfMemoryAreNoMoreThanTheJobs) {
  nvmlDeviceAttributes_t attributes{};
  ASSERT_EQ(manual_nvmlDeviceGetAttributes_v2(desk_, gpu(1), &attributes), NVML_SUCCESS);
  EXPECT_EQ(attributes.memorySizeMB, 4u << 10);
  EXPECT_EQ(attributes.multiprocessorCount, 132u);
  ASSERT_EQ(manual_nvmlDeviceGetAttributes_v2(unlimited_, gpu(1), &attributes), NVML_SUCCESS);
  EXPECT_EQ(attributes.memorySizeMB, 16u << 10);

  nvmlConfComputeMemSizeInfo_t sizes{};
  ASSERT_EQ(manual_nvmlDeviceGetConfComputeMemSizeInfo(desk_, gpu(1), &sizes), NVML_SUCCESS);
  EXPECT_EQ(sizes.protectedMemSizeKib, 4 * kGiB >> 10);
  EXPECT_EQ(sizes.unprotectedMemSizeKib, kGiB >> 11);
}

TEST_F(NvmlDeskTest, ProtectedMemoryIsTheJobs) {
  memory_.take(0);
  ASSERT_TRUE(memory_.charge(0, kGiB));
  nvmlMemory_t memory{};
  ASSERT_EQ(manual_nvmlDeviceGetConfComputeProtectedMemoryUsage(desk_, gpu(1), &memory),
            NVML_SUCCESS);
  EXPECT_EQ(memory.total, 4 * kGiB);
  EXPECT_EQ(memory.used, kGiB);
  EXPECT_EQ(memory.free, 3 * kGiB);
}

TEST_F(NvmlDeskTest, ALinkLeadsToTheJobsGpusAndToSwitches) {
  nvmlPciInfo_t pci{};
  EXPECT_EQ(manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(desk_, gpu(1), 2, &pci), NVML_SUCCESS);
  EXPECT_EQ(pci.bus, 2u);
  EXPECT_EQ(manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(desk_, gpu(1), kSwitch, &pci), NVML_SUCCESS);
  EXPECT_EQ(pci.bus, kSwitch);
  EXPECT_EQ(manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(desk_, gpu(1), 3, &pci),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(pci.bus, 0u);
}

TEST_F(NvmlDeskTest, ALengthIsNoMoreThanTheStructHolds) {
  static unsigned given;
  table_.nvmlSystemGetDriverBranch = [](nvmlSystemDriverBranchInfo_t*, unsigned length) {
    given = length;
    return NVML_SUCCESS;
  };
  nvmlSystemDriverBranchInfo_t info{};
  EXPECT_EQ(manual_nvmlSystemGetDriverBranch(desk_, &info, 1u << 20), NVML_SUCCESS);
  EXPECT_EQ(given, sizeof info.branch);
  EXPECT_EQ(manual_nvmlSystemGetDriverBranch(desk_, &info, 5), NVML_SUCCESS);
  EXPECT_EQ(given, 5u);
}

TEST_F(NvmlDeskTest, AFunctionThatTheServerLacksIsRefused) {
  const NvmlTable empty;
  Desk desk{empty, {gpu(1)}, memory_, 0, 0};
  nvmlBAR1Memory_t bar1{};
  nvmlPciInfo_t pci{};
  EXPECT_EQ(manual_nvmlDeviceGetBAR1MemoryInfo(desk, gpu(1), &bar1), NVML_ERROR_FUNCTION_NOT_FOUND);
  EXPECT_EQ(manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(desk, gpu(1), 0, &pci),
            NVML_ERROR_FUNCTION_NOT_FOUND);
}

}  // namespace
}  // namespace fargpu::server
