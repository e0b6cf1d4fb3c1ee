// For a worker that waits on its own thread (that of a management session): until no worker is left
// on its GPUs whose client had ended by now (schema/worker.capnp, `awaitEnded`).
#pragma once

#include <cstdint>

#include "common/transport/transport.h"

namespace fargpu::server {

// Asks over `control`, on which this thread alone receives; other messages are dropped. `sequence`
// is a fresh one. Returns after the answer, at the deadline, or when the daemon is gone.
void await_ended(int control, uint32_t sequence, transport::Deadline deadline);

}  // namespace fargpu::server
