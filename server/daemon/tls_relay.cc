#include "server/daemon/tls_relay.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>

#include "server/handover/child_process.h"

namespace fargpu::server {

Result<Fd> TlsRelays::start(Fd socket, const TlsRelayOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ChildSetup setup;
  setup.program = program_;
  setup.arguments = {fmt::format("--cert={}", options.certificate_file),
                     fmt::format("--key={}", options.key_file),
                     fmt::format("--peer={}", options.peer),
                     fmt::format("--milliseconds={}", options.milliseconds)};
  setup.descriptors = {{socket.get(), kTlsSocketFd}, {theirs.get(), kTlsPlainFd}};
  FARGPU_ASSIGN_OR_RETURN(const pid_t pid, start_child(setup));
  running_.insert(pid);
  return ours;
}

void TlsRelays::reap() {
  // Each relay by its pid: other children are waited for elsewhere.
  for (auto pid = running_.begin(); pid != running_.end();) {
    pid = ::waitpid(*pid, nullptr, WNOHANG) == 0 ? std::next(pid) : running_.erase(pid);
  }
}

}  // namespace fargpu::server
