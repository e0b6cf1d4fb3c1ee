// Orders of the daemon to a session's worker: a page that the worker maps read-only. A command over
// the control socket tells the worker to read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/shared_page.h"

namespace fargpu::server {

struct SessionOrders {
  // Not 0: no more frames are taken from the client. Relaxed at both ends: no other data depends on
  // it.
  std::atomic<uint32_t> stopped{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

using OrdersPage = SharedValue<SessionOrders>;

}  // namespace fargpu::server
