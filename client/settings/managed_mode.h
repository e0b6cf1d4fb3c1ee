// When the contents of managed memory are fetched to this process.
//
//   FARGPU_MANAGED   auto (default), touched, userfaultfd, signal or eager
#pragma once

#include "common/base/status.h"

namespace fargpu::client {

enum class ManagedMode {
  kAuto,         // as kTouched, but as kSignal on a host with an adapter
  kTouched,      // as kUserfaultfd where the system allows it, otherwise as kSignal
  kUserfaultfd,  // system calls wait, too
  kSignal,       // system calls fail
  kEager,        // as kSignal, and all memory at a synchronisation: then system calls can use it
};

// A malformed value is an error that names the variable.
Result<ManagedMode> read_managed_mode();

}  // namespace fargpu::client
