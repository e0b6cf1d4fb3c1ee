// What FARGPU_LINK says: "rtt=20us,bandwidth=100Gbps,jitter=1ms". Any part may be missing. Pure
// functions.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace fargpu::transport {

struct LinkSettings {
  std::chrono::nanoseconds rtt{0};
  // One frame of eight, and all later frames, are delayed by up to this time.
  std::chrono::nanoseconds jitter{0};
  double bits_per_second = 0;  // 0: as fast as it goes
  // "rtt=20us bandwidth=100Gbps": for logs.
  std::string to_string() const;
};

// rtt, jitter: a duration such as 20us, 1.5ms or 0.2s, at most 10 s. bandwidth: bits per second
// such as 10Gbps, 2.5Gbps, 800Mbps or 64Kbps (powers of 1000). kInvalidArgument names the part that
// is wrong and shows a right one.
Result<LinkSettings> parse_link(std::string_view text);

}  // namespace fargpu::transport
