// Structs of a server that leaves its texts without an end and counts beyond the array.
#include <gtest/gtest.h>

#include <cstring>

#include "generated/client/nvml/repair.h"

namespace fargpu::nvml {
namespace {

template <typename T>
T made_of(unsigned char byte) {
  T it;
  std::memset(static_cast<void*>(&it), byte, sizeof it);
  repair(it);
  return it;
}

TEST(NvmlRepair, TextsEnd) {
  const auto pci = made_of<nvmlPciInfo_t>('x');
  EXPECT_EQ(std::strlen(pci.busId), sizeof pci.busId - 1);
  EXPECT_EQ(std::strlen(pci.busIdLegacy), sizeof pci.busIdLegacy - 1);
  const auto branch = made_of<nvmlSystemDriverBranchInfo_t>('x');
  EXPECT_EQ(std::strlen(branch.branch), sizeof branch.branch - 1);
}

TEST(NvmlRepair, CountsAreThoseOfTheArrays) {
  EXPECT_EQ(made_of<nvmlBridgeChipHierarchy_t>(0xff).bridgeCount, NVML_MAX_PHYSICAL_BRIDGE);
  EXPECT_EQ(made_of<nvmlClkMonStatus_t>(0xff).clkMonListSize, unsigned{MAX_CLK_DOMAINS});
  EXPECT_EQ(made_of<nvmlGpuThermalSettings_t>(0xff).count,
            unsigned{NVML_MAX_THERMAL_SENSORS_PER_GPU});
}

TEST(NvmlRepair, AlsoInStructsWithin) {
  const auto licences = made_of<nvmlGridLicensableFeatures_t>(0x11);
  EXPECT_EQ(licences.licensableFeaturesCount, unsigned{NVML_GRID_LICENSE_FEATURE_MAX_COUNT});
  for (const auto& each : licences.gridLicensableFeatures) {
    EXPECT_EQ(std::strlen(each.licenseInfo), sizeof each.licenseInfo - 1);
    EXPECT_EQ(std::strlen(each.productName), sizeof each.productName - 1);
  }
  EXPECT_EQ(made_of<nvmlNvLinkInfo_v2_t>(0xff).firmwareInfo.numValidEntries,
            unsigned{NVML_NVLINK_FIRMWARE_VERSION_LENGTH});
}

TEST(NvmlRepair, WhatIsRightStays) {
  nvmlGpuThermalSettings_t settings{};
  settings.count = 2;
  repair(settings);
  EXPECT_EQ(settings.count, 2u);
  nvmlPciInfo_t pci{};
  std::strcpy(pci.busId, "00000000:65:00.0");
  repair(pci);
  EXPECT_STREQ(pci.busId, "00000000:65:00.0");
}

}  // namespace
}  // namespace fargpu::nvml
