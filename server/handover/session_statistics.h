// Figures that a worker publishes and the daemon reads for `fargpu ps`: a page of memory that both
// map, so that neither wakes the other.
//
// The worker's executor writes, relaxed; the daemon reads, relaxed: each figure is right by itself,
// they need not match each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/shared_page.h"

namespace fargpu::server {

struct SessionStatistics {
  std::atomic<uint64_t> calls{0};              // frames executed
  std::atomic<uint64_t> memory_used_bytes{0};  // over all GPUs of the session
  // Written once, before transport_bytes, whose release store pairs with the daemon's acquire load.
  // The daemon believes neither: it cuts the text.
  char transport[256] = {};
  std::atomic<uint32_t> transport_bytes{0};

  void set_transport(std::string_view text);
  std::string transport_text() const;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

using StatisticsPage = SharedValue<SessionStatistics>;

}  // namespace fargpu::server
