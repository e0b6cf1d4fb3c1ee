// What the daemon writes and a session's worker reads: a page of its own, which the worker cannot
// write. A command over the control socket tells the worker to look.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/shared_page.h"

namespace fargpu::server {

struct SessionOrders {
  // Not 0: no more frames are taken from the client. Both ends relaxed: it stands alone, and the
  // command that goes with it orders what matters.
  std::atomic<uint32_t> stopped{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

using OrdersPage = SharedValue<SessionOrders>;

}  // namespace fargpu::server
