// When the contents of managed memory come to this process.
//
//   FARGPU_MANAGED   touched (default) or eager
#pragma once

#include "common/base/status.h"

namespace fargpu::client {

enum class ManagedMode {
  kTouched,  // a block when it is touched
  kEager,    // also all of it with a synchronisation: then system calls can use it
};

// A malformed value is an error that names the variable.
Result<ManagedMode> read_managed_mode();

}  // namespace fargpu::client
