#include "common/transport/spin.h"

#include <thread>

#include "common/base/env.h"

namespace fargpu::transport {

std::chrono::microseconds usual_spin(SpinningEnd end) {
  if (std::thread::hardware_concurrency() < 8) return std::chrono::microseconds(0);
  return std::chrono::microseconds(end == SpinningEnd::kClient ? 2000 : 200);
}

Result<std::chrono::microseconds> spin_from_environment(SpinningEnd end) {
  return env_duration("FARGPU_SPIN", usual_spin(end));
}

}  // namespace fargpu::transport
