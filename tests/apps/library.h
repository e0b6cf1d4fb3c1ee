// What the programs for NVIDIA's libraries share: checks, device arrays, and the JSON line that
// scripts/gpu-suite reads.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    int error_ = static_cast<int>(call);                                                \
    if (error_ != 0) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, error_); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

// Numbers from -0.5 to 0.5, the same in every run.
template <typename T>
std::vector<T> random_values(size_t count, unsigned state = 1) {
  std::vector<T> values(count);
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>(state >> 8) / static_cast<T>(1 << 24) - static_cast<T>(0.5);
  }
  return values;
}

template <typename T>
T* to_device(const std::vector<T>& values) {
  T* memory = nullptr;
  CHECK(cudaMalloc(&memory, values.size() * sizeof(T)));
  CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

template <typename T>
std::vector<T> to_host(const T* memory, size_t count) {
  std::vector<T> values(count);
  CHECK(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

// Seconds of work(); the device is idle before and after.
template <typename Work>
double timed(Work work) {
  CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  work();
  CHECK(cudaDeviceSynchronize());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns what main() returns.
inline int report(bool right, std::initializer_list<double> values, double seconds) {
  std::printf("{\"values\": [");
  const char* comma = "";
  for (const double value : values) {
    std::printf("%s%.9g", comma, value);
    comma = ", ";
  }
  std::printf("], \"seconds\": %.6f}\n", seconds);
  if (!right) std::fprintf(stderr, "the result is not what the host computed\n");
  return right ? 0 : 1;
}
