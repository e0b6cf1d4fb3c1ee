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

// What FARGPU_MANAGED and the system say. An error, which names the variable: it is malformed, or
// wants what the system does not give.
Result<ManagedWay> choose_managed_way();
// The same error, without a look at what is not wanted.
Status check_managed_way();

}  // namespace fargpu::client
