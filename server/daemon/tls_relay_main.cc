// fargpu-tls-relay: one TLS connection of fargpud, from its handshake to its end. Started by
// fargpud, which talks to the other end of the plain socket and counts the connection among its
// handshakes; nothing that this process reads from the network can reach the daemon's memory.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "common/base/log.h"
#include "common/tls/tls_connection.h"
#include "server/daemon/tls_relay.h"

int main(int argc, char** argv) {
  using namespace fargpu;
  server::TlsRelayOptions options;
  CLI::App app{"fargpu-tls-relay: one TLS connection of fargpud; started by it."};
  app.set_version_flag("--version", "fargpu-tls-relay " FARGPU_VERSION);
  app.add_option("--cert", options.certificate_file)->required();
  app.add_option("--key", options.key_file)->required();
  app.add_option("--peer", options.peer)->required();
  app.add_option("--milliseconds", options.milliseconds)->required();
  CLI11_PARSE(app, argc, argv);
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
