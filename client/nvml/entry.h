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
  const LibraryShare share = hold();
  return share.library == nullptr ? share.result : work(*share.library);
}

// A function that is refused, and whether that was logged.
struct Refused {
  const char* name;
  std::atomic<bool> told{false};
};

// The checks that come before a refusal.
class Refusal {
 public:
  Refusal() : share_(hold()), result_(share_.result) {}
  void device(nvmlDevice_t handle) {
    if (share_.library != nullptr && share_.library->find(handle) == nullptr) wrong();
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
  const LibraryShare share_;
  nvmlReturn_t result_;
};

}  // namespace fargpu::nvml
