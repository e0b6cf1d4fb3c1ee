// The slot of the simulator's device memory (sim/base/settings.h) that a daemon takes when its
// configuration names none: one that no other daemon of this host has, or of this container, which
// is a network namespace of its own. It is chosen at random, so that daemons of different hosts
// hardly ever have the same. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/fd.h"

namespace fargpu::server {

struct SimSlot {
  static constexpr uint32_t kSlots = 32;
  uint32_t number = 0;
  Fd claim;  // the slot is taken while this is open; none when others have all slots
};
SimSlot claim_sim_slot();

// The file in which the daemon's workers record their memory of the simulated GPUs
// (FARGPU_SIM_SHARED). It lasts as long as the descriptor.
struct SimUsage {
  std::string path;  // empty: there is none
  Fd file;
};
SimUsage make_sim_usage();

}  // namespace fargpu::server
