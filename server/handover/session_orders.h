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
  // Workers of other sessions on the session's GPUs, also those that are ending. 0 as well: the
  // daemon is older and does not say. Relaxed likewise: the daemon counts a worker before its
  // client can do anything.
  std::atomic<uint32_t> neighbours{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

using OrdersPage = SharedValue<SessionOrders>;

}  // namespace fargpu::server
