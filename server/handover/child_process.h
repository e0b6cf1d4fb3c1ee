// Starting fargpu-worker: as a session's process, or once as a probe. The child gets exactly the
// descriptors it is meant to have, and none of a client's secrets in its environment.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace fargpu::server {

struct ChildSetup {
  std::string program;
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // set over our own
  // ours -> the child's number; besides them it gets 0 (null), 1 and 2
  std::vector<std::pair<int, int>> descriptors;
};

// The child's pid. Descriptors of ours above the last listed number are closed in it; those below
// must be close-on-exec.
Result<pid_t> start_child(const ChildSetup& setup);

// "exited with 3", "was killed by signal 9 (Killed)".
std::string describe_wait_status(int wait_status);

}  // namespace fargpu::server
