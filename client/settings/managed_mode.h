// When the contents of managed memory come to this process.
//
//   FARGPU_MANAGED   auto (default), touched, userfaultfd, signal or eager
#pragma once

#include "common/base/status.h"

namespace fargpu::client {

enum class ManagedMode {
  kAuto,         // as kTouched; on a host with an adapter (mapped_mode.h) as kSignal
  kTouched,      // a block when it is touched: by kUserfaultfd where the system allows it
  kUserfaultfd,  // system calls wait, too
  kSignal,       // system calls fail
  kEager,        // as kSignal, and all of it with a synchronisation: then system calls can use it
};

// A malformed value is an error that names the variable.
Result<ManagedMode> read_managed_mode();

}  // namespace fargpu::client
