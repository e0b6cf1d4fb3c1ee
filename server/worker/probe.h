// The probe: a fargpu-worker that takes the inventory of this host for the daemon (Probe of
// schema/worker.capnp), and ends.
#pragma once

#include <string>

#include "common/base/status.h"
#include "server/handover/inventory.h"

namespace fargpu::server {

// Opens the driver ("auto", "sim" or a path) and asks it about its GPUs, also, if that is wanted,
// what a context takes of their memory: a second process makes some.
Result<Inventory> take_inventory(const std::string& driver, bool measures_contexts);

}  // namespace fargpu::server
