// fargpu-tls-relay: one TLS connection of fargpud, from its handshake to its end. Started by
// fargpud, which talks to the other end of the plain socket and counts the connection among its
// handshakes; nothing that this process reads from the network can reach the daemon's memory.
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "common/base/log.h"
#include "common/tls/tls_connection.h"
#include "server/daemon/tls_relay.h"

namespace {

// What TlsRelays::start() passes, all of it. False: not so.
bool read_arguments(int argc, char** argv, fargpu::server::TlsRelayOptions& options) {
  enum { kCert, kKey, kPeer, kMilliseconds, kCount };
  const option known[] = {{"cert", required_argument, nullptr, kCert},
                          {"key", required_argument, nullptr, kKey},
                          {"peer", required_argument, nullptr, kPeer},
                          {"milliseconds", required_argument, nullptr, kMilliseconds},
                          {}};
  std::string_view values[kCount];
  for (int which; (which = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    if (which < 0 || which >= kCount) return false;  // getopt_long has said why
    values[which] = ::optarg;
  }
  const std::string_view time = values[kMilliseconds];
  const auto read = std::from_chars(time.data(), time.data() + time.size(), options.milliseconds);
  options.certificate_file = values[kCert];
  options.key_file = values[kKey];
  options.peer = values[kPeer];
  return ::optind == argc && !time.empty() && read.ec == std::errc() &&
         read.ptr == time.data() + time.size() && !options.certificate_file.empty() &&
         !options.key_file.empty() && !options.peer.empty();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace fargpu;
  const std::string_view first = argc == 2 ? argv[1] : "";
  if (first == "--version" || first == "--help") {
    std::puts(first == "--version"
                  ? "fargpu-tls-relay " FARGPU_VERSION
                  : "fargpu-tls-relay: one TLS connection of fargpud; started by it.");
    return 0;
  }
  server::TlsRelayOptions options;
  if (!read_arguments(argc, argv, options)) {
    std::fprintf(stderr, "fargpu-tls-relay is started by fargpud; by hand it is of no use\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_DUMPABLE, 0);  // it holds the server's key: no core dump, no debugger
  log::configure("tls", log::Level::kInfo);
  Fd socket(server::kTlsSocketFd);
  const Fd plain(server::kTlsPlainFd);
  const auto deadline = transport::Clock::now() + std::chrono::milliseconds(options.milliseconds);
  const auto fail = [&](const Status& status) {
    log::warn("event=tls-failed peer={} why=\"{}\"", options.peer, status.message());
    return 1;
  };
  const auto context = tls::TlsContext::server(options.certificate_file, options.key_file);
  if (!context.ok()) return fail(context.status());
  auto connection = tls::TlsConnection::accept(*context, std::move(socket), deadline);
  if (!connection.ok()) return fail(connection.status());
  connection->relay(plain);
  return 0;
}
