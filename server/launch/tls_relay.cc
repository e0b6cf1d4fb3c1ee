#include "server/launch/tls_relay.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>

namespace fargpu::server {

Result<Fd> TlsRelays::start(Fd socket, const TlsRelayOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ProcessSetup setup;
  setup.program = program_;
  setup.arguments = {fmt::format("--cert={}", options.certificate_file),
                     fmt::format("--key={}", options.key_file),
                     fmt::format("--peer={}", options.peer),
                     fmt::format("--milliseconds={}", options.milliseconds),
                     fmt::format("--lost-client={}", options.lost_client)};
  setup.name = fmt::format("tls {}", options.peer);
  setup.descriptors = {{socket.get(), kTlsSocketFd}, {theirs.get(), kTlsPlainFd}};
  FARGPU_ASSIGN_OR_RETURN(const auto relay, WatchedProcess::start(loop_, launcher_, setup));
  relay->on_end([this, key = relay.get()](const ProcessEnd&) {
    std::erase_if(running_, [key](const auto& each) { return each.get() == key; });
  });
  running_.insert(relay);
  return ours;
}

}  // namespace fargpu::server
