// The size of every struct of the NVML ABI, and where its last field lies. The numbers were taken
// with NVIDIA's header of CUDA 13.0 (compare_header.py compares everything); those of the three
// structs that are no longer in it follow from their fields.
#include <cstddef>

#include "schema/nvml/nvml.h"

namespace {

#define FARGPU_LAYOUT(type, size, last, offset) \
  static_assert(sizeof(type) == (size) && offsetof(type, last) == (offset))

FARGPU_LAYOUT(nvmlBAR1Memory_t, 24, bar1Used, 16);
FARGPU_LAYOUT(nvmlBridgeChipHierarchy_t, 1028, bridgeChipInfo, 4);
FARGPU_LAYOUT(nvmlBridgeChipInfo_t, 8, fwVersion, 4);
FARGPU_LAYOUT(nvmlC2cModeInfo_v1_t, 4, isC2cEnabled, 0);
FARGPU_LAYOUT(nvmlClkMonFaultInfo_t, 8, clkDomainFaultMask, 4);
FARGPU_LAYOUT(nvmlClkMonStatus_t, 264, clkMonList, 8);
FARGPU_LAYOUT(nvmlClockOffset_v1_t, 24, maxClockOffsetMHz, 20);
FARGPU_LAYOUT(nvmlConfComputeGetKeyRotationThresholdInfo_v1_t, 16, attackerAdvantage, 8);
FARGPU_LAYOUT(nvmlConfComputeMemSizeInfo_t, 16, unprotectedMemSizeKib, 8);
FARGPU_LAYOUT(nvmlConfComputeSystemCaps_t, 8, gpusCaps, 4);
FARGPU_LAYOUT(nvmlConfComputeSystemState_t, 12, devToolsMode, 8);
FARGPU_LAYOUT(nvmlCoolerInfo_v1_t, 16, target, 12);
FARGPU_LAYOUT(nvmlDeviceAddressingMode_v1_t, 8, value, 4);
FARGPU_LAYOUT(nvmlDeviceAttributes_t, 40, memorySizeMB, 32);
FARGPU_LAYOUT(nvmlDeviceCapabilities_v1_t, 8, capMask, 4);
FARGPU_LAYOUT(nvmlDeviceCurrentClockFreqs_v1_t, 2052, str, 4);
FARGPU_LAYOUT(nvmlDevicePerfModes_v1_t, 2052, str, 4);
FARGPU_LAYOUT(nvmlDevicePowerMizerModes_v1_t, 12, supportedPowerMizerModes, 8);
FARGPU_LAYOUT(nvmlDramEncryptionInfo_v1_t, 8, encryptionState, 4);
FARGPU_LAYOUT(nvmlEccErrorCounts_t, 32, registerFile, 24);
FARGPU_LAYOUT(nvmlEccSramErrorStatus_v1_t, 104, bThresholdExceeded, 96);
FARGPU_LAYOUT(nvmlEncoderSessionInfo_t, 32, averageLatency, 28);
FARGPU_LAYOUT(nvmlEventData_t, 32, computeInstanceId, 28);
FARGPU_LAYOUT(nvmlEventData_v1_t, 24, eventData, 16);
FARGPU_LAYOUT(nvmlExcludedDeviceInfo_t, 148, uuid, 68);
FARGPU_LAYOUT(nvmlFBCSessionInfo_t, 48, averageLatency, 44);
FARGPU_LAYOUT(nvmlFBCStats_t, 12, averageLatency, 8);
FARGPU_LAYOUT(nvmlFanSpeedInfo_v1_t, 12, speed, 8);
FARGPU_LAYOUT(nvmlFieldValue_t, 40, value, 32);
FARGPU_LAYOUT(nvmlGpuDynamicPstatesInfo_t, 132, utilization, 4);
FARGPU_LAYOUT(nvmlGpuFabricInfo_t, 28, state, 24);
FARGPU_LAYOUT(nvmlGpuFabricInfo_v2_t, 36, healthMask, 32);
FARGPU_LAYOUT(nvmlGpuFabricInfo_v3_t, 40, healthSummary, 36);
FARGPU_LAYOUT(nvmlGpuThermalSettings_t, 64, sensor, 4);
FARGPU_LAYOUT(nvmlGridLicensableFeature_t, 284, licenseExpiry, 268);
FARGPU_LAYOUT(nvmlGridLicensableFeatures_t, 860, gridLicensableFeatures, 8);
FARGPU_LAYOUT(nvmlGridLicenseExpiry_t, 16, status, 14);
FARGPU_LAYOUT(nvmlMarginTemperature_v1_t, 8, marginTemperature, 4);
FARGPU_LAYOUT(nvmlMask255_t, 32, mask, 0);
FARGPU_LAYOUT(nvmlMemory_t, 24, used, 16);
FARGPU_LAYOUT(nvmlMemory_v2_t, 40, used, 32);
FARGPU_LAYOUT(nvmlNvLinkInfo_v1_t, 8, isNvleEnabled, 4);
FARGPU_LAYOUT(nvmlNvLinkInfo_v2_t, 1612, firmwareInfo, 8);
FARGPU_LAYOUT(nvmlNvLinkUtilizationControl_t, 8, pktfilter, 4);
FARGPU_LAYOUT(nvmlNvlinkFirmwareInfo_t, 1604, numValidEntries, 1600);
FARGPU_LAYOUT(nvmlNvlinkFirmwareVersion_t, 16, subMinor, 12);
FARGPU_LAYOUT(nvmlNvlinkGetBwMode_v1_t, 12, bwMode, 8);
FARGPU_LAYOUT(nvmlNvlinkSupportedBwModes_v1_t, 28, totalBwModes, 27);
FARGPU_LAYOUT(nvmlPciInfoExt_v1_t, 64, busId, 32);
FARGPU_LAYOUT(nvmlPciInfo_t, 68, busId, 36);
FARGPU_LAYOUT(nvmlPciInfo_v1_t, 32, pciDeviceId, 28);
FARGPU_LAYOUT(nvmlPciInfo_v2_t, 52, reserved, 36);
FARGPU_LAYOUT(nvmlPdi_v1_t, 16, value, 8);
FARGPU_LAYOUT(nvmlPlatformInfo_v1_t, 44, moduleId, 40);
FARGPU_LAYOUT(nvmlPlatformInfo_v2_t, 44, moduleId, 40);
FARGPU_LAYOUT(nvmlProcessDetailList_v1_t, 24, procArray, 16);
FARGPU_LAYOUT(nvmlProcessDetail_v1_t, 32, usedGpuCcProtectedMemory, 24);
FARGPU_LAYOUT(nvmlProcessInfo_v1_t, 16, usedGpuMemory, 8);
FARGPU_LAYOUT(nvmlProcessInfo_v2_t, 24, computeInstanceId, 20);
FARGPU_LAYOUT(nvmlProcessUtilizationInfo_v1_t, 40, ofaUtil, 32);
FARGPU_LAYOUT(nvmlProcessUtilizationSample_t, 32, decUtil, 28);
FARGPU_LAYOUT(nvmlProcessesUtilizationInfo_v1_t, 24, procUtilArray, 16);
FARGPU_LAYOUT(nvmlRemappedRowsInfo_v2_t, 24, bFailureOccurred, 20);
FARGPU_LAYOUT(nvmlRepairStatus_v1_t, 12, bTpcRepairPending, 8);
FARGPU_LAYOUT(nvmlRowRemapperHistogramValues_t, 20, none, 16);
FARGPU_LAYOUT(nvmlSample_t, 16, sampleValue, 8);
FARGPU_LAYOUT(nvmlSystemConfComputeSettings_v1_t, 20, multiGpuMode, 16);
FARGPU_LAYOUT(nvmlSystemDriverBranchInfo_v1_t, 84, branch, 4);
FARGPU_LAYOUT(nvmlTemperature_v1_t, 12, temperature, 8);
FARGPU_LAYOUT(nvmlUUIDValue_t, 41, bytes, 0);
FARGPU_LAYOUT(nvmlUUID_v1_t, 52, value, 8);
FARGPU_LAYOUT(nvmlUnrepairableMemoryStatus_v1_t, 4, bUnrepairableMemory, 0);
FARGPU_LAYOUT(nvmlUtilization_t, 8, memory, 4);
FARGPU_LAYOUT(nvmlValue_t, 8, usVal, 0);
FARGPU_LAYOUT(nvmlViolationTime_t, 16, violationTime, 8);
FARGPU_LAYOUT(nvmlWorkloadPowerProfileCurrentProfiles_v1_t, 100, enforcedProfilesMask, 68);
FARGPU_LAYOUT(nvmlWorkloadPowerProfileInfo_v1_t, 44, conflictingMask, 12);
FARGPU_LAYOUT(nvmlWorkloadPowerProfileProfilesInfo_v1_t, 11256, perfProfile, 36);

#undef FARGPU_LAYOUT

static_assert(sizeof(nvmlReturn_t) == 4 && sizeof(nvmlPstates_t) == 4);
static_assert(nvmlMemory_v2 == 0x02000028 && nvmlTemperature_v1 == 0x0100000c);

}  // namespace
