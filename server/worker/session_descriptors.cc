#include "server/worker/session_descriptors.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

// The same under a number above those of a session, which dup3() to one of those leaves alone.
Result<Fd> moved_above(Fd descriptor) {
  constexpr int kAbove = *std::max_element(kSessionFds.begin(), kSessionFds.end()) + 1;
  if (descriptor.get() >= kAbove) return descriptor;
  Fd moved(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kAbove));
  if (!moved.valid()) return system_error("cannot move a descriptor", errno);
  return moved;
}

}  // namespace

Status reserve_session_descriptors() {
  Fd opened(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return system_error("cannot open /dev/null", errno);
  FARGPU_ASSIGN_OR_RETURN(const Fd nothing, moved_above(std::move(opened)));
  for (const int number : kSessionFds) {
    if (::dup3(nothing.get(), number, O_CLOEXEC) < 0)
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
  // A driver may have closed a number that was kept, and one of them may have come there.
  for (Fd& each : received) {
    FARGPU_ASSIGN_OR_RETURN(each, moved_above(std::move(each)));
  }
  for (size_t i = 0; i < wanted; ++i) {
    if (::dup3(received[i].get(), kSessionFds[i], O_CLOEXEC) < 0)
      return system_error("cannot give a descriptor its number", errno);
  }
  if (!may_have_further_connections) ::close(kJoinFd);
  return Status();
}

}  // namespace fargpu::server
