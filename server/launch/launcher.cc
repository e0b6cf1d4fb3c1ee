#include "server/launch/launcher.h"

#include <fmt/core.h>
#include <poll.h>

#include <cstring>

#include "common/transport/poll.h"

namespace fargpu::server {

std::string ProcessEnd::describe() const {
  if (signal == 0) return fmt::format("exited with {}", code);
  return fmt::format("was killed by signal {} ({}){}", signal, strsignal(signal),
                     core_dump ? " and left a core dump" : "");
}

std::optional<ProcessEnd> await_end(LaunchedProcess& process, transport::Deadline deadline) {
  pollfd entry{process.end_descriptor(), POLLIN, 0};
  (void)transport::poll_until(std::span(&entry, 1), deadline);
  return process.end();
}

}  // namespace fargpu::server
