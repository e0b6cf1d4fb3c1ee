// Common parts of hand-written client halves of NVML.
#pragma once

#include <algorithm>
#include <span>

#include "client/nvml/entry.h"
#include "generated/client/nvml/calls.h"

namespace fargpu::nvml {

// `work` gets the device, after nvmlInit and if there is one.
template <typename Work>
nvmlReturn_t with_device(nvmlDevice_t handle, Work&& work) {
  return with_library([&](Library& library) {
    const Device* const device = library.find(handle);
    return device == nullptr ? NVML_ERROR_INVALID_ARGUMENT : work(library, *device);
  });
}

template <typename T>
nvmlReturn_t give(T* to, const T& value) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *to = value;
  return NVML_SUCCESS;
}

// NVML's protocol for lists: how many there are, and INSUFFICIENT_SIZE when there is less room.
template <typename T>
nvmlReturn_t give_list(unsigned int* count, T* list, std::span<const T> elements) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const size_t room = list == nullptr ? 0 : *count;
  *count = static_cast<unsigned int>(elements.size());
  if (room < elements.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::copy(elements.begin(), elements.end(), list);
  return NVML_SUCCESS;
}

}  // namespace fargpu::nvml
