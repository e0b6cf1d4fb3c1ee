// What conformance programs share. Each program prints one line per call: its text, the error's
// name, and the values it gave. The test runs a program on the driver directly and through fargpu
// and compares the two outputs, so lines must not hold addresses, times or ids.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

inline const char* error_name(CUresult result) {
  static thread_local char unknown[32];
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  std::snprintf(unknown, sizeof(unknown), "error %d", static_cast<int>(result));
  return unknown;
}

// Prints "<text>: <error name>" and returns the result.
inline CUresult show(const char* text, CUresult result) {
  std::printf("%s: %s\n", text, error_name(result));
  return result;
}
#define SHOW(call) show(#call, (call))

// For steps that the test only needs: anything but success ends the program.
#define NEED(call)                                                            \
  do {                                                                        \
    CUresult need_result_ = (call);                                           \
    if (need_result_ != CUDA_SUCCESS) {                                       \
      std::printf("cannot go on: %s: %s\n", #call, error_name(need_result_)); \
      std::exit(3);                                                           \
    }                                                                         \
  } while (0)

#define VALUE(expression) \
  std::printf("  %s = %lld\n", #expression, static_cast<long long>(expression))

// Lines appear as they are printed, also when a program dies.
inline const int kLineBuffered = std::setvbuf(stdout, nullptr, _IOLBF, 1 << 14);

// Every driver has this form, which newer headers do not declare.
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

// cuInit, device 0, a context of its own, current.
inline CUcontext make_context(int ordinal = 0) {
  NEED(cuInit(0));
  CUdevice device;
  NEED(cuDeviceGet(&device, ordinal));
  CUcontext context;
  NEED(cuCtxCreate_v2(&context, 0, device));
  return context;
}

// A sum over bytes that tells any change of content or order.
inline uint32_t checksum(const void* data, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 16777619u;
  return hash;
}

template <typename T>
uint32_t checksum(const std::vector<T>& values) {
  return checksum(values.data(), values.size() * sizeof(T));
}
