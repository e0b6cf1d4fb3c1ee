// Orders of the daemon to a session's worker: a page that the worker maps read-only. A command over
// the control socket makes the worker read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/host/shared_page.h"

namespace fargpu::server {

// The gate of a session, which can hold back every call that puts work into a stream. A closed gate
// keeps such a call, and later frames of the client, until the gate is open.
enum class Gate : uint32_t {
  kOpen = 0,
  // No more work is submitted, and submitted work ends: answers that release a stream are executed.
  // Used by stops.
  kClosed = 1,
  // Answers wait as well: a stream that they release would run its pending work. For the time
  // outside a window.
  kShut = 2,
};

struct SessionOrders {
  // A Gate; a daemon of an older release knows the first two. Relaxed at both ends: no other data
  // depends on it.
  std::atomic<uint32_t> gate{0};
  // Number of workers of other sessions on the session's GPUs, including ending ones, and one that
  // is opening its driver, if a session on these GPUs has ended meanwhile. 0 as well: the daemon is
  // older and does not say. Relaxed likewise: the daemon counts a worker before its client can do
  // anything.
  std::atomic<uint32_t> neighbours{0};

  void set(Gate state) { gate.store(static_cast<uint32_t>(state), std::memory_order_relaxed); }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

using OrdersPage = SharedValue<SessionOrders>;

}  // namespace fargpu::server
