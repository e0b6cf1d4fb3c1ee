#include "server/worker/session_descriptors.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "server/handover/worker_options.h"

namespace fargpu::server {

Status reserve_session_descriptors() {
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.valid()) return system_error("cannot open /dev/null", errno);
  for (const int number : kSessionFds) {
    if (number != nothing.get() && ::dup3(nothing.get(), number, O_CLOEXEC) < 0)
      return system_error("cannot keep a descriptor's number", errno);
  }
  return Status();
}

Status place_session_descriptors(std::vector<Fd> received, bool may_have_further_connections) {
  const size_t wanted = kSessionFds.size() - (may_have_further_connections ? 0 : 1);
  if (received.size() != wanted) {
    return {StatusCode::kProtocol,
            fmt::format("start came with {} descriptors instead of {}", received.size(), wanted)};
  }
  for (size_t i = 0; i < wanted; ++i) {
    if (::dup3(received[i].get(), kSessionFds[i], O_CLOEXEC) < 0)
      return system_error("cannot give a descriptor its number", errno);
  }
  if (!may_have_further_connections) ::close(kJoinFd);
  return Status();
}

}  // namespace fargpu::server
