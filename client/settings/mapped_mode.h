// When the contents of mapped pinned memory are fetched to this process, if it is not shared with
// the worker.
//
//   FARGPU_MAPPED   touched, where the system lets faults be served; eager; or auto (default):
//                   touched, unless this host has an adapter
#pragma once

#include <string>

#include "common/base/status.h"

namespace fargpu::client {

enum class MappedMode {
  kAuto,
  kTouched,  // a block on access
  kEager,    // all changes at every synchronisation
};

// A malformed value is an error that names the variable.
Result<MappedMode> read_mapped_mode();

// Whether this host has a device that accesses a program's memory behind its back, once the program
// has registered the memory with it (MPI, UCX).
bool has_adapter(const std::string& devices = "/dev");

inline bool wants_touched(MappedMode mode) {
  return mode == MappedMode::kTouched || (mode == MappedMode::kAuto && !has_adapter());
}

}  // namespace fargpu::client
