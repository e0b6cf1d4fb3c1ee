// What is exported, and what an uninitialised library answers.
#include "tests/sim_nvml/library.h"

#include <fstream>
#include <string>

namespace fargpu::sim_nvml {
namespace {

TEST(Library, ExportsEverySymbol) {
  ASSERT_NE(library(), nullptr) << dlerror();
  std::ifstream symbols(FARGPU_NVML_SYMBOLS);
  std::string name;
  int count = 0;
  while (std::getline(symbols, name)) {
    EXPECT_NE(dlsym(library(), name.c_str()), nullptr) << name;
    ++count;
  }
  EXPECT_EQ(count, 404);
  EXPECT_EQ(dlsym(library(), "cuInit"), nullptr);  // nothing of what is inside
}

TEST(Library, RefusesEverythingBeforeTheFirstInitialisation) {
  unsigned count = 7;
  nvmlDevice_t device = nullptr;
  char text[80];
  EXPECT_EQ(call<>("nvmlShutdown"), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(call<unsigned*>("nvmlDeviceGetCount_v2", &count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ((call<unsigned, nvmlDevice_t*>("nvmlDeviceGetHandleByIndex_v2", 0, &device)),
            NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ((call<char*, unsigned>("nvmlSystemGetDriverVersion", text, sizeof(text))),
            NVML_ERROR_UNINITIALIZED);
  // a function that is not simulated, and a setter
  EXPECT_EQ((call<nvmlDevice_t, unsigned*>("nvmlDeviceGetFanSpeed", nullptr, &count)),
            NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ((call<nvmlDevice_t, nvmlComputeMode_t>("nvmlDeviceSetComputeMode", nullptr,
                                                   NVML_COMPUTEMODE_DEFAULT)),
            NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(count, 7U);
}

TEST(Library, SaysTheCudaVersionAlways) {
  int version = 0;
  EXPECT_EQ(call<int*>("nvmlSystemGetCudaDriverVersion_v2", &version), NVML_SUCCESS);
  EXPECT_EQ(version / 1000, 13);
}

TEST(Library, CountsInitialisations) {
  ASSERT_EQ(call<>("nvmlInit"), NVML_SUCCESS);
  ASSERT_EQ(call<unsigned>("nvmlInitWithFlags", NVML_INIT_FLAG_NO_GPUS), NVML_SUCCESS);
  EXPECT_EQ(call<unsigned>("nvmlInitWithFlags", 1U << 9), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call<>("nvmlShutdown"), NVML_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(call<unsigned*>("nvmlDeviceGetCount_v2", &count), NVML_SUCCESS);
  EXPECT_EQ(call<>("nvmlShutdown"), NVML_SUCCESS);
  EXPECT_EQ(call<unsigned*>("nvmlDeviceGetCount_v2", &count), NVML_ERROR_UNINITIALIZED);
}

TEST(Library, NamesOutcomes) {
  auto* name = reinterpret_cast<const char* (*)(nvmlReturn_t)>(dlsym(library(), "nvmlErrorString"));
  EXPECT_STREQ(name(NVML_ERROR_NOT_SUPPORTED), "Not Supported");
  EXPECT_STREQ(name(NVML_ERROR_UNKNOWN), "Unknown Error");
  EXPECT_STREQ(name(static_cast<nvmlReturn_t>(12345)), "Unknown Error");
}

TEST_F(Nvml, RefusesWhatIsNotSimulatedAndWhatChangesACard) {
  unsigned speed = 0;
  EXPECT_EQ((call<nvmlDevice_t, unsigned*>("nvmlDeviceGetFanSpeed", device(), &speed)),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ((call<nvmlDevice_t, unsigned, nvmlEnableState_t*>("nvmlDeviceGetNvLinkState", device(),
                                                              0, nullptr)),
            NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ((call<nvmlDevice_t, unsigned>("nvmlDeviceSetPowerManagementLimit", device(), 1)),
            NVML_ERROR_NO_PERMISSION);
  const void* table = &speed;
  const char id[16] = "";
  EXPECT_EQ((call<const void**, const void*>("nvmlInternalGetExportTable", &table, id)),
            NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
}

}  // namespace
}  // namespace fargpu::sim_nvml
