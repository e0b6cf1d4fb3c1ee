// The library under test, opened once, and its functions by name.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "schema/nvml/nvml.h"

namespace fargpu::sim_nvml {

inline void* library() {
  static void* handle = dlopen(FARGPU_SIM_NVML, RTLD_NOW | RTLD_LOCAL);
  return handle;
}

// call<unsigned*>("nvmlDeviceGetCount_v2", &count): the types are those of the parameters.
template <typename... Parameters>
nvmlReturn_t call(const char* name, std::type_identity_t<Parameters>... arguments) {
  auto* function = reinterpret_cast<nvmlReturn_t (*)(Parameters...)>(dlsym(library(), name));
  if (function == nullptr) {
    ADD_FAILURE() << name << " is not exported";
    return NVML_ERROR_FUNCTION_NOT_FOUND;
  }
  return function(arguments...);
}

// Tests of an initialised library.
class Nvml : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(call<>("nvmlInit_v2"), NVML_SUCCESS); }
  void TearDown() override { EXPECT_EQ(call<>("nvmlShutdown"), NVML_SUCCESS); }

  static nvmlDevice_t device(unsigned index = 0) {
    nvmlDevice_t handle = nullptr;
    const auto result =
        call<unsigned, nvmlDevice_t*>("nvmlDeviceGetHandleByIndex_v2", index, &handle);
    EXPECT_EQ(result, NVML_SUCCESS);
    return handle;
  }

  // The answer of a function of the form (device, out).
  template <typename T>
  static T get(const char* name, unsigned index = 0) {
    T value{};
    const nvmlReturn_t result = call<nvmlDevice_t, T*>(name, device(index), &value);
    EXPECT_EQ(result, NVML_SUCCESS) << name;
    return value;
  }

  static std::string text(const char* name, unsigned index = 0) {
    char buffer[96] = "";
    const nvmlReturn_t result =
        call<nvmlDevice_t, char*, unsigned>(name, device(index), buffer, sizeof(buffer));
    EXPECT_EQ(result, NVML_SUCCESS) << name;
    return buffer;
  }
};

}  // namespace fargpu::sim_nvml
