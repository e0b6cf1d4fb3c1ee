// The common beginning of every entry point of the simulated management library: checks, and
// answers that are the same for all GPUs. An entry point looks at its arguments in the order of
// NVML: library initialised, handle, pointers, values.
#pragma once

#include <sim_nvml_functions.h>  // made by make_exports.py

#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "sim/nvml/management.h"

namespace fargpu::sim::nvml {

// No exception leaves an entry point: few calls allocate, and a failure is an answer.
template <typename Body>
nvmlReturn_t with_library(Body&& body) noexcept {
  if (!initialized()) return NVML_ERROR_UNINITIALIZED;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return NVML_ERROR_MEMORY;
  }
}

// body(const Gpu&)
template <typename Body>
nvmlReturn_t with_gpu(nvmlDevice_t handle, Body&& body) noexcept {
  return with_library([&]() -> nvmlReturn_t {
    const Gpu* gpu = find_gpu(handle);
    return gpu ? body(*gpu) : NVML_ERROR_INVALID_ARGUMENT;
  });
}

template <typename T>
nvmlReturn_t give(T* out, const std::type_identity_t<T>& value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

template <typename T, typename U>
nvmlReturn_t give(T* first, const std::type_identity_t<T>& a, U* second,
                  const std::type_identity_t<U>& b) {
  if (first == nullptr || second == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *first = a;
  *second = b;
  return NVML_SUCCESS;
}

// A text with its end in `length` bytes.
nvmlReturn_t give_text(char* out, unsigned length, std::string_view text);

// A struct whose first field the caller has set to `version`. Everything else is 0 before
// fill(T&).
template <typename T, typename Fill>
nvmlReturn_t give_version(T* out, unsigned version, Fill&& fill) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (out->version != version) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  *out = T{};
  out->version = version;
  fill(*out);
  return NVML_SUCCESS;
}

// NVML's way with lists: *count says how much there is room for, then how many there are. Too
// little room is NVML_ERROR_INSUFFICIENT_SIZE.
template <typename T>
nvmlReturn_t give_list(unsigned* count, T* out, std::span<const std::type_identity_t<T>> list) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = std::exchange(*count, static_cast<unsigned>(list.size()));
  if (room < list.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (list.empty()) return NVML_SUCCESS;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::memcpy(out, list.data(), list.size_bytes());
  return NVML_SUCCESS;
}
// Missing features.
nvmlReturn_t give_empty_list(nvmlDevice_t device, unsigned* count);

// Answers that are the same for all GPUs.
template <typename... Parts>
nvmlReturn_t answer(nvmlDevice_t device, Parts&&... parts) {
  return with_gpu(device, [&](const Gpu&) { return give(std::forward<Parts>(parts)...); });
}
nvmlReturn_t answer_text(nvmlDevice_t device, char* out, unsigned length, std::string_view text);

}  // namespace fargpu::sim::nvml
