#include "common/transport/spin.h"

#include <thread>

#include "common/base/env.h"

namespace fargpu::transport {

std::chrono::microseconds usual_spin() {
  return std::chrono::microseconds(std::thread::hardware_concurrency() >= 8 ? 50 : 0);
}

Result<std::chrono::microseconds> spin_from_environment() { return env_duration("FARGPU_SPIN", usual_spin()); }

}  // namespace fargpu::transport
