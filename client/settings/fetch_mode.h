// When the contents of host memory that device code uses are fetched to this process.
//
//   FARGPU_MAPPED    of pinned and registered memory that is not shared with the worker
//   FARGPU_MANAGED   of managed memory
//
// touched: what is accessed; eager: everything at every synchronisation; or auto (default): as the
// system and its devices allow.
#pragma once

#include <string>

#include "common/base/status.h"

namespace fargpu::client {

enum class FetchMode { kAuto, kTouched, kEager };

// A malformed value is an error that names the variable.
Result<FetchMode> read_mapped_mode();
Result<FetchMode> read_managed_mode();
// For a person, if FARGPU_MANAGED has a value that has another name by now; otherwise empty.
std::string renamed_managed_mode();

// Whether this host has a device that accesses a program's memory behind its back, once the program
// has registered the memory with it (MPI, UCX).
bool has_adapter(const std::string& devices = "/dev");

// Whether accesses may be reported by the system, which an adapter's are not.
inline bool wants_touched(FetchMode mode) {
  return mode == FetchMode::kTouched || (mode == FetchMode::kAuto && !has_adapter());
}

}  // namespace fargpu::client
