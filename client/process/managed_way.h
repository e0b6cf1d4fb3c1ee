// How accesses to managed memory wait for its contents, in this process.
#pragma once

#include <string>

#include "common/base/status.h"

namespace fargpu::client {

struct ManagedWay {
  bool by_messages = false;  // userfaultfd; otherwise signals
  bool is_eager = false;
  std::string why;  // for a person
};

// The mechanism by FARGPU_MANAGED and the system. An error names the variable: the value is
// malformed, or the system does not support it.
Result<ManagedWay> choose_managed_way();
// The same errors, but userfaultfd is probed only if FARGPU_MANAGED requires it.
Status check_managed_way();

}  // namespace fargpu::client
