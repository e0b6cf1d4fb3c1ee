// Clocks and performance states.
#pragma once

#include "schema/nvml/basic.h"

typedef enum {
  NVML_CLOCK_GRAPHICS = 0,
  NVML_CLOCK_SM = 1,
  NVML_CLOCK_MEM = 2,
  NVML_CLOCK_VIDEO = 3,
  NVML_CLOCK_COUNT = 4,
} nvmlClockType_t;

// Which of the values of a clock.
typedef enum {
  NVML_CLOCK_ID_CURRENT = 0,
  NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
  NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
  NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
  NVML_CLOCK_ID_COUNT = 4,
} nvmlClockId_t;

// 0 is the fastest.
typedef enum {
  NVML_PSTATE_0 = 0,
  NVML_PSTATE_1 = 1,
  NVML_PSTATE_2 = 2,
  NVML_PSTATE_3 = 3,
  NVML_PSTATE_4 = 4,
  NVML_PSTATE_5 = 5,
  NVML_PSTATE_6 = 6,
  NVML_PSTATE_7 = 7,
  NVML_PSTATE_8 = 8,
  NVML_PSTATE_9 = 9,
  NVML_PSTATE_10 = 10,
  NVML_PSTATE_11 = 11,
  NVML_PSTATE_12 = 12,
  NVML_PSTATE_13 = 13,
  NVML_PSTATE_14 = 14,
  NVML_PSTATE_15 = 15,
  NVML_PSTATE_UNKNOWN = 32,
} nvmlPstates_t;

#define NVML_MAX_GPU_PERF_PSTATES 16
#define NVML_MAX_GPU_UTILIZATIONS 8
#define NVML_PERF_MODES_BUFFER_SIZE 2048
#define MAX_CLK_DOMAINS 32

typedef struct {
  unsigned int version;
  nvmlClockType_t type;
  nvmlPstates_t pstate;
  int clockOffsetMHz;
  int minClockOffsetMHz;
  int maxClockOffsetMHz;
} nvmlClockOffset_v1_t;
typedef nvmlClockOffset_v1_t nvmlClockOffset_t;
#define nvmlClockOffset_v1 NVML_STRUCT_VERSION(ClockOffset, 1)

// Index into nvmlGpuDynamicPstatesInfo_t's utilization.
typedef enum {
  NVML_GPU_UTILIZATION_DOMAIN_GPU = 0,
  NVML_GPU_UTILIZATION_DOMAIN_FB = 1,
  NVML_GPU_UTILIZATION_DOMAIN_VID = 2,
  NVML_GPU_UTILIZATION_DOMAIN_BUS = 3,
} nvmlGpuUtilizationDomainId_t;

typedef struct {
  unsigned int flags;
  struct {
    unsigned int bIsPresent;
    unsigned int percentage;
    unsigned int incThreshold;
    unsigned int decThreshold;
  } utilization[NVML_MAX_GPU_UTILIZATIONS];
} nvmlGpuDynamicPstatesInfo_t;

// Texts of the form "key=value, key=value; ...".
typedef struct {
  unsigned int version;
  char str[NVML_PERF_MODES_BUFFER_SIZE];
} nvmlDevicePerfModes_v1_t;
typedef nvmlDevicePerfModes_v1_t nvmlDevicePerfModes_t;
#define nvmlDevicePerfModes_v1 NVML_STRUCT_VERSION(DevicePerfModes, 1)

typedef struct {
  unsigned int version;
  char str[NVML_PERF_MODES_BUFFER_SIZE];
} nvmlDeviceCurrentClockFreqs_v1_t;
typedef nvmlDeviceCurrentClockFreqs_v1_t nvmlDeviceCurrentClockFreqs_t;
#define nvmlDeviceCurrentClockFreqs_v1 NVML_STRUCT_VERSION(DeviceCurrentClockFreqs, 1)

typedef struct {
  unsigned int clkApiDomain;
  unsigned int clkDomainFaultMask;
} nvmlClkMonFaultInfo_t;

typedef struct {
  unsigned int bGlobalStatus;
  unsigned int clkMonListSize;
  nvmlClkMonFaultInfo_t clkMonList[MAX_CLK_DOMAINS];
} nvmlClkMonStatus_t;

#define NVML_ADAPTIVE_CLOCKING_INFO_STATUS_DISABLED 0
#define NVML_ADAPTIVE_CLOCKING_INFO_STATUS_ENABLED 1

// Bits of nvmlDeviceGetCurrentClocksEventReasons: why clocks are not as high as they could be. The
// names with Throttle are older.
#define nvmlClocksEventReasonNone 0x0LL
#define nvmlClocksEventReasonGpuIdle 0x1LL
#define nvmlClocksEventReasonApplicationsClocksSetting 0x2LL
#define nvmlClocksEventReasonSwPowerCap 0x4LL
#define nvmlClocksThrottleReasonHwSlowdown 0x8LL
#define nvmlClocksEventReasonSyncBoost 0x10LL
#define nvmlClocksEventReasonSwThermalSlowdown 0x20LL
#define nvmlClocksThrottleReasonHwThermalSlowdown 0x40LL
#define nvmlClocksThrottleReasonHwPowerBrakeSlowdown 0x80LL
#define nvmlClocksEventReasonDisplayClockSetting 0x100LL
#define nvmlClocksEventReasonAll 0x1ffLL
#define nvmlClocksThrottleReasonUserDefinedClocks nvmlClocksEventReasonApplicationsClocksSetting
#define nvmlClocksThrottleReasonGpuIdle nvmlClocksEventReasonGpuIdle
#define nvmlClocksThrottleReasonApplicationsClocksSetting \
  nvmlClocksEventReasonApplicationsClocksSetting
#define nvmlClocksThrottleReasonSyncBoost nvmlClocksEventReasonSyncBoost
#define nvmlClocksThrottleReasonSwPowerCap nvmlClocksEventReasonSwPowerCap
#define nvmlClocksThrottleReasonSwThermalSlowdown nvmlClocksEventReasonSwThermalSlowdown
#define nvmlClocksThrottleReasonDisplayClockSetting nvmlClocksEventReasonDisplayClockSetting
#define nvmlClocksThrottleReasonNone nvmlClocksEventReasonNone
#define nvmlClocksThrottleReasonAll nvmlClocksEventReasonAll
