// Readings that change with time only.
#pragma once

#include <chrono>

#include "sim/nvml/readings.h"

namespace fargpu::sim::nvml {

inline unsigned long long microseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// Used by a GPU that has drawn its power since the clock of the system began.
inline unsigned long long millijoules() {
  const auto up = std::chrono::steady_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(up).count();
  return static_cast<unsigned long long>(ms) * kMilliwatts / 1000;
}

}  // namespace fargpu::sim::nvml
