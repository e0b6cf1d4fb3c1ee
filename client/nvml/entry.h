// The work of an exported NVML function around its call. No exception leaves a function of C.
#pragma once

#include <atomic>
#include <exception>

#include "client/nvml/library.h"

namespace fargpu::nvml {

// Logs the caught exception.
nvmlReturn_t failed(const char* what);

template <typename Work>
nvmlReturn_t guarded(Work&& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("an unknown exception");
  }
}

// `work` gets the library, after nvmlInit.
template <typename Work>
nvmlReturn_t with_library(Work&& work) {
  const Held held = hold();
  return held.library == nullptr ? held.result : work(*held.library);
}

// A function that is refused, and whether that was logged.
struct Refused {
  const char* name;
  std::atomic<bool> told{false};
};

// The checks that come before a refusal.
class Refusal {
 public:
  Refusal() : held_(hold()), result_(held_.result) {}
  void device(nvmlDevice_t handle) {
    if (held_.library != nullptr && held_.library->find(handle) == nullptr) wrong();
  }
  void pointer(const void* pointer) {
    if (pointer == nullptr) wrong();
  }
  nvmlReturn_t denied(Refused& function);
  nvmlReturn_t unsupported(Refused& function);

 private:
  void wrong() {
    if (result_ == NVML_SUCCESS) result_ = NVML_ERROR_INVALID_ARGUMENT;
  }
  const Held held_;
  nvmlReturn_t result_;
};

}  // namespace fargpu::nvml
