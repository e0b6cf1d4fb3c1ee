// Ids of jobs and sessions as text: "7f3a0c5d1e2-12", the number of the daemon's life and a
// counter, both hexadecimal (docs/adr/0032).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace fargpu {

inline constexpr unsigned kIdCounterBits = 20;

inline std::string id_text(uint64_t id) {
  return fmt::format("{:011x}-{:x}", id >> kIdCounterBits,
                     id & ((uint64_t{1} << kIdCounterBits) - 1));
}

}  // namespace fargpu
