// fargpu-tls-relay: one TLS connection of fargpud, from its handshake to its end. Started by
// fargpud, which talks to the other end of the plain socket and counts the connection among its
// handshakes; nothing that this process reads from the network can reach the daemon's memory.
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include "common/base/log.h"
#include "common/tls/tls_connection.h"
#include "server/launch/silent_host.h"
#include "server/launch/tls_relay.h"

namespace {

// What TlsRelays::start() passes, all of it. False: not so.
bool read_arguments(int argc, char** argv, fargpu::server::TlsRelayOptions& options) {
  enum { kCert, kKey, kPeer, kMilliseconds, kLostClient, kCount };
  const option known[] = {{"cert", required_argument, nullptr, kCert},
                          {"key", required_argument, nullptr, kKey},
                          {"peer", required_argument, nullptr, kPeer},
                          {"milliseconds", required_argument, nullptr, kMilliseconds},
                          {"lost-client", required_argument, nullptr, kLostClient},
                          {}};
  std::string_view values[kCount];
  for (int which; (which = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    if (which < 0 || which >= kCount) return false;  // getopt_long has said why
    values[which] = ::optarg;
  }
  const auto read = [&values](int which, int64_t& number) {
    const std::string_view text = values[which];
    const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
    return !text.empty() && end.ec == std::errc() && end.ptr == text.data() + text.size();
  };
  options.certificate_file = values[kCert];
  options.key_file = values[kKey];
  options.peer = values[kPeer];
  return ::optind == argc && read(kMilliseconds, options.milliseconds) &&
         read(kLostClient, options.lost_client) && !options.certificate_file.empty() &&
         !options.key_file.empty() && !options.peer.empty();
}

// Ends the connection when the client's host has been silent for too long.
void watch_host(int socket, const fargpu::server::TlsRelayOptions& options) {
  const std::chrono::milliseconds limit(options.lost_client);
  if (limit.count() == 0) return;
  std::thread([socket, limit, peer = options.peer] {
    fargpu::server::SilentHost host(socket, limit);
    do {
      std::this_thread::sleep_for(host.pause());
    } while (!host.has_gone());
    fargpu::log::warn("event=client-silent peer={} why=\"its host answers nothing\"", peer);
    ::shutdown(socket, SHUT_RDWR);
  }).detach();
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
  watch_host(connection->descriptor(), options);
  connection->relay(plain);
  return 0;
}
