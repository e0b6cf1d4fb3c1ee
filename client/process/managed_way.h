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
// malformed.
Result<ManagedWay> choose_managed_way();

}  // namespace fargpu::client
