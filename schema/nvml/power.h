// Power, temperature, fans.
#pragma once

#include "schema/nvml/basic.h"

// Numbers of nvmlDeviceGetPowerSource.
typedef unsigned int nvmlPowerSource_t;
#define NVML_POWER_SOURCE_AC 0
#define NVML_POWER_SOURCE_BATTERY 1
#define NVML_POWER_SOURCE_UNDERSIZED 2

// It has a version without a field for it.
typedef struct {
  unsigned int currentMode;
  unsigned int mode;
  unsigned int supportedPowerMizerModes;
} nvmlDevicePowerMizerModes_v1_t;

// What may hold clocks back.
typedef enum {
  NVML_PERF_POLICY_POWER = 0,
  NVML_PERF_POLICY_THERMAL = 1,
  NVML_PERF_POLICY_SYNC_BOOST = 2,
  NVML_PERF_POLICY_BOARD_LIMIT = 3,
  NVML_PERF_POLICY_LOW_UTILIZATION = 4,
  NVML_PERF_POLICY_RELIABILITY = 5,
  NVML_PERF_POLICY_TOTAL_APP_CLOCKS = 10,
  NVML_PERF_POLICY_TOTAL_BASE_CLOCKS = 11,
  NVML_PERF_POLICY_COUNT = 12,
} nvmlPerfPolicyType_t;

// Nanoseconds; the reference is in microseconds of the clock since 1970.
typedef struct {
  unsigned long long referenceTime;
  unsigned long long violationTime;
} nvmlViolationTime_t;

#define NVML_255_MASK_BITS_PER_ELEM 32
#define NVML_255_MASK_NUM_ELEMS 8
#define NVML_WORKLOAD_POWER_MAX_PROFILES 255

// A set of 255 numbers.
typedef struct {
  unsigned int mask[NVML_255_MASK_NUM_ELEMS];
} nvmlMask255_t;

// What one workload power profile is.
typedef struct {
  unsigned int version;
  unsigned int profileId;
  unsigned int priority;
  nvmlMask255_t conflictingMask;
} nvmlWorkloadPowerProfileInfo_v1_t;
typedef nvmlWorkloadPowerProfileInfo_v1_t nvmlWorkloadPowerProfileInfo_t;
#define nvmlWorkloadPowerProfileInfo_v1 NVML_STRUCT_VERSION(WorkloadPowerProfileInfo, 1)

typedef struct {
  unsigned int version;
  nvmlMask255_t perfProfilesMask;
  nvmlWorkloadPowerProfileInfo_t perfProfile[NVML_WORKLOAD_POWER_MAX_PROFILES];
} nvmlWorkloadPowerProfileProfilesInfo_v1_t;
typedef nvmlWorkloadPowerProfileProfilesInfo_v1_t nvmlWorkloadPowerProfileProfilesInfo_t;
#define nvmlWorkloadPowerProfileProfilesInfo_v1 \
  NVML_STRUCT_VERSION(WorkloadPowerProfileProfilesInfo, 1)

typedef struct {
  unsigned int version;
  nvmlMask255_t perfProfilesMask;
  nvmlMask255_t requestedProfilesMask;
  nvmlMask255_t enforcedProfilesMask;
} nvmlWorkloadPowerProfileCurrentProfiles_v1_t;
typedef nvmlWorkloadPowerProfileCurrentProfiles_v1_t nvmlWorkloadPowerProfileCurrentProfiles_t;
#define nvmlWorkloadPowerProfileCurrentProfiles_v1 \
  NVML_STRUCT_VERSION(WorkloadPowerProfileCurrentProfiles, 1)

typedef enum {
  NVML_TEMPERATURE_GPU = 0,
  NVML_TEMPERATURE_COUNT = 1,
} nvmlTemperatureSensors_t;

typedef enum {
  NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
  NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
  NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
  NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
  NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN = 4,
  NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR = 5,
  NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX = 6,
  NVML_TEMPERATURE_THRESHOLD_GPS_CURR = 7,
  NVML_TEMPERATURE_THRESHOLD_COUNT = 8,
} nvmlTemperatureThresholds_t;

// Degrees Celsius.
typedef struct {
  unsigned int version;
  nvmlTemperatureSensors_t sensorType;
  int temperature;
} nvmlTemperature_v1_t;
typedef nvmlTemperature_v1_t nvmlTemperature_t;
#define nvmlTemperature_v1 NVML_STRUCT_VERSION(Temperature, 1)

// Degrees to the next threshold that slows the device down.
typedef struct {
  unsigned int version;
  int marginTemperature;
} nvmlMarginTemperature_v1_t;
typedef nvmlMarginTemperature_v1_t nvmlMarginTemperature_t;
#define nvmlMarginTemperature_v1 NVML_STRUCT_VERSION(MarginTemperature, 1)

#define NVML_MAX_THERMAL_SENSORS_PER_GPU 3

typedef enum {
  NVML_THERMAL_TARGET_NONE = 0,
  NVML_THERMAL_TARGET_GPU = 1,
  NVML_THERMAL_TARGET_MEMORY = 2,
  NVML_THERMAL_TARGET_POWER_SUPPLY = 4,
  NVML_THERMAL_TARGET_BOARD = 8,
  NVML_THERMAL_TARGET_VCD_BOARD = 9,
  NVML_THERMAL_TARGET_VCD_INLET = 10,
  NVML_THERMAL_TARGET_VCD_OUTLET = 11,
  NVML_THERMAL_TARGET_ALL = 15,
  NVML_THERMAL_TARGET_UNKNOWN = -1,
} nvmlThermalTarget_t;

typedef enum {
  NVML_THERMAL_CONTROLLER_NONE = 0,
  NVML_THERMAL_CONTROLLER_GPU_INTERNAL = 1,
  NVML_THERMAL_CONTROLLER_ADM1032 = 2,
  NVML_THERMAL_CONTROLLER_ADT7461 = 3,
  NVML_THERMAL_CONTROLLER_MAX6649 = 4,
  NVML_THERMAL_CONTROLLER_MAX1617 = 5,
  NVML_THERMAL_CONTROLLER_LM99 = 6,
  NVML_THERMAL_CONTROLLER_LM89 = 7,
  NVML_THERMAL_CONTROLLER_LM64 = 8,
  NVML_THERMAL_CONTROLLER_G781 = 9,
  NVML_THERMAL_CONTROLLER_ADT7473 = 10,
  NVML_THERMAL_CONTROLLER_SBMAX6649 = 11,
  NVML_THERMAL_CONTROLLER_VBIOSEVT = 12,
  NVML_THERMAL_CONTROLLER_OS = 13,
  NVML_THERMAL_CONTROLLER_NVSYSCON_CANOAS = 14,
  NVML_THERMAL_CONTROLLER_NVSYSCON_E551 = 15,
  NVML_THERMAL_CONTROLLER_MAX6649R = 16,
  NVML_THERMAL_CONTROLLER_ADT7473S = 17,
  NVML_THERMAL_CONTROLLER_UNKNOWN = -1,
} nvmlThermalController_t;

typedef struct {
  unsigned int count;
  struct {
    nvmlThermalController_t controller;
    int defaultMinTemp;
    int defaultMaxTemp;
    int currentTemp;
    nvmlThermalTarget_t target;
  } sensor[NVML_MAX_THERMAL_SENSORS_PER_GPU];
} nvmlGpuThermalSettings_t;

typedef enum {
  NVML_THERMAL_COOLER_SIGNAL_NONE = 0,
  NVML_THERMAL_COOLER_SIGNAL_TOGGLE = 1,
  NVML_THERMAL_COOLER_SIGNAL_VARIABLE = 2,
  NVML_THERMAL_COOLER_SIGNAL_COUNT = 3,
} nvmlCoolerControl_t;

typedef enum {
  NVML_THERMAL_COOLER_TARGET_NONE = 1 << 0,
  NVML_THERMAL_COOLER_TARGET_GPU = 1 << 1,
  NVML_THERMAL_COOLER_TARGET_MEMORY = 1 << 2,
  NVML_THERMAL_COOLER_TARGET_POWER_SUPPLY = 1 << 3,
  NVML_THERMAL_COOLER_TARGET_GPU_RELATED =
      (NVML_THERMAL_COOLER_TARGET_GPU | NVML_THERMAL_COOLER_TARGET_MEMORY) |
      NVML_THERMAL_COOLER_TARGET_POWER_SUPPLY,
} nvmlCoolerTarget_t;

typedef struct {
  unsigned int version;
  unsigned int index;
  nvmlCoolerControl_t signalType;
  nvmlCoolerTarget_t target;
} nvmlCoolerInfo_v1_t;
typedef nvmlCoolerInfo_v1_t nvmlCoolerInfo_t;
#define nvmlCoolerInfo_v1 NVML_STRUCT_VERSION(CoolerInfo, 1)

// Turns per minute.
typedef struct {
  unsigned int version;
  unsigned int fan;
  unsigned int speed;
} nvmlFanSpeedInfo_v1_t;
typedef nvmlFanSpeedInfo_v1_t nvmlFanSpeedInfo_t;
#define nvmlFanSpeedInfo_v1 NVML_STRUCT_VERSION(FanSpeedInfo, 1)

typedef unsigned int nvmlFanControlPolicy_t;
#define NVML_FAN_POLICY_TEMPERATURE_CONTINOUS_SW 0
#define NVML_FAN_POLICY_MANUAL 1
