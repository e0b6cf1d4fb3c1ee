// What the GPUs measure is made up, but must fit together.
#include "tests/sim_nvml/library.h"

namespace fargpu::sim_nvml {
namespace {

class Readings : public Nvml {
 protected:
  static unsigned temperature(const char* name, int kind) {
    unsigned value = 0;
    EXPECT_EQ((call<nvmlDevice_t, int, unsigned*>(name, device(), kind, &value)), NVML_SUCCESS);
    return value;
  }
};

TEST_F(Readings, PowerIsBelowItsLimit) {
  unsigned least = 0, most = 0;
  EXPECT_EQ((call<nvmlDevice_t, unsigned*, unsigned*>(
                "nvmlDeviceGetPowerManagementLimitConstraints", device(), &least, &most)),
            NVML_SUCCESS);
  const auto limit = get<unsigned>("nvmlDeviceGetEnforcedPowerLimit");
  EXPECT_LE(least, limit);
  EXPECT_LE(limit, most);
  EXPECT_LT(get<unsigned>("nvmlDeviceGetPowerUsage"), limit);
}

TEST_F(Readings, TemperatureIsBelowItsThresholds) {
  const unsigned now = temperature("nvmlDeviceGetTemperature", NVML_TEMPERATURE_GPU);
  const unsigned slow =
      temperature("nvmlDeviceGetTemperatureThreshold", NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
  EXPECT_LT(now, slow);
  EXPECT_LT(slow,
            temperature("nvmlDeviceGetTemperatureThreshold", NVML_TEMPERATURE_THRESHOLD_SHUTDOWN));
  nvmlTemperature_t versioned{nvmlTemperature_v1, NVML_TEMPERATURE_GPU, 0};
  EXPECT_EQ(
      (call<nvmlDevice_t, nvmlTemperature_t*>("nvmlDeviceGetTemperatureV", device(), &versioned)),
      NVML_SUCCESS);
  EXPECT_EQ(versioned.temperature, static_cast<int>(now));
  unsigned value = 0;
  EXPECT_EQ((call<nvmlDevice_t, int, unsigned*>("nvmlDeviceGetTemperature", device(), 5, &value)),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(Readings, EnergyGrows) {
  const auto before = get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption");
  EXPECT_GT(before, 0U);
  EXPECT_GE(get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption"), before);
}

TEST_F(Readings, FieldsHaveOutcomesOfTheirOwn) {
  nvmlFieldValue_t fields[3] = {};
  fields[0].fieldId = NVML_FI_DEV_POWER_INSTANT;
  fields[1].fieldId = NVML_FI_DEV_NVLINK_GET_SPEED;
  fields[2].fieldId = NVML_FI_MAX;
  const auto ask = [&](int count) {
    return call<nvmlDevice_t, int, nvmlFieldValue_t*>("nvmlDeviceGetFieldValues", device(), count,
                                                      fields);
  };
  ASSERT_EQ(ask(3), NVML_SUCCESS);
  EXPECT_EQ(fields[0].nvmlReturn, NVML_SUCCESS);
  EXPECT_EQ(fields[0].valueType, NVML_VALUE_TYPE_UNSIGNED_INT);
  EXPECT_EQ(fields[0].value.uiVal, get<unsigned>("nvmlDeviceGetPowerUsage"));
  EXPECT_EQ(fields[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(fields[2].nvmlReturn, NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ask(0), NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(Readings, SamplesAreThoseSinceTheLastOnes) {
  nvmlValueType_t type{};
  unsigned count = 0;
  nvmlSample_t samples[8] = {};
  const auto ask = [&](unsigned long long since, nvmlSample_t* out) {
    return call<nvmlDevice_t, nvmlSamplingType_t, unsigned long long, nvmlValueType_t*, unsigned*,
                nvmlSample_t*>("nvmlDeviceGetSamples", device(), NVML_TOTAL_POWER_SAMPLES, since,
                               &type, &count, out);
  };
  ASSERT_EQ(ask(0, nullptr), NVML_SUCCESS);
  ASSERT_LE(count, 8U);
  ASSERT_EQ(ask(0, samples), NVML_SUCCESS);
  ASSERT_GT(count, 1U);
  EXPECT_LT(samples[0].timeStamp, samples[1].timeStamp);
  EXPECT_EQ(samples[0].sampleValue.uiVal, get<unsigned>("nvmlDeviceGetPowerUsage"));
  count = 8;
  EXPECT_EQ(ask(~0ULL, samples), NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(count, 0U);
}

TEST_F(Readings, AGpuIsWholeIdleAndInOrder) {
  EXPECT_EQ(get<unsigned>("nvmlDeviceGetMaxMigDeviceCount"), 0U);
  EXPECT_EQ(get<nvmlUtilization_t>("nvmlDeviceGetUtilizationRates").gpu, 0U);
  EXPECT_EQ(get<nvmlPstates_t>("nvmlDeviceGetPerformanceState"), NVML_PSTATE_0);
  EXPECT_EQ(get<nvmlComputeMode_t>("nvmlDeviceGetComputeMode"), NVML_COMPUTEMODE_DEFAULT);
  EXPECT_EQ(get<nvmlDeviceArchitecture_t>("nvmlDeviceGetArchitecture"),
            unsigned{NVML_DEVICE_ARCH_HOPPER});
  unsigned long long errors = 1;
  const auto ask = [&](int kind, int counter) {
    return call<nvmlDevice_t, int, int, unsigned long long*>("nvmlDeviceGetTotalEccErrors",
                                                             device(), kind, counter, &errors);
  };
  EXPECT_EQ(ask(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC), NVML_SUCCESS);
  EXPECT_EQ(errors, 0U);
  EXPECT_EQ(ask(2, 0), NVML_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace fargpu::sim_nvml
