// The probe: what a fargpu-worker finds out about this host when the daemon asks (Probe of
// schema/worker.capnp). Runs in a process of its own, which ends afterwards.
#pragma once

#include <string>

#include "common/base/status.h"
#include "server/handover/inventory.h"

namespace fargpu::server {

// Opens the driver ("auto", "sim" or a path) and asks it about its GPUs.
Result<Inventory> take_inventory(const std::string& driver);

}  // namespace fargpu::server
