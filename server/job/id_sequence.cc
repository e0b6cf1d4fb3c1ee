#include "server/job/id_sequence.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace fargpu::server {

uint64_t random_number() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) == sizeof number) return number;
  // Ids need to be different, not secret. The multiplier spreads both over all bits.
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return (static_cast<uint64_t>(now) ^ static_cast<uint64_t>(::getpid())) * 0x9e3779b97f4a7c15u;
}

uint64_t daemon_id() {
  static const uint64_t id = std::max<uint64_t>(1, random_number());
  return id;
}

}  // namespace fargpu::server
