// Figures of a session for `fargpu ps`, in a page that worker and daemon map, so that neither wakes
// the other.
//
// The executor writes and the daemon reads, both relaxed: each figure is right by itself; two of
// them may be of different moments.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/host/shared_page.h"

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
