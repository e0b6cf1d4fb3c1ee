// ManagedState: a session's state for managed memory.
#pragma once

#include <mutex>

#include "client/managed/arenas.h"
#include "client/managed/fault_service.h"
#include "client/managed/managed_memory.h"
#include "client/managed/managed_variables.h"
#include "client/memory/user_faults.h"

namespace fargpu::client {

struct ManagedState {
  explicit ManagedState(Observers& observers) : memory(observers) {}
  ManagedMemory memory;
  Arenas arenas;
  FaultService faults{memory};
  UserFaults user_faults{UserFaults::Mode::kWrites};
  std::once_flag started;
  ManagedVariables variables{memory, faults};
};

}  // namespace fargpu::client
