#include "common/tls/tls_tunnel.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>

#include "common/base/descriptors.h"
#include "common/host/thread.h"
#include "common/tls/tls_connection.h"

namespace fargpu::tls {
namespace {

// The descriptors of all tunnels: closed in a child of fork(). Never destroyed: their threads may
// outlive static destructors.
struct Ends {
  std::mutex mutex;
  std::set<int> open;
};
Ends& ends() {
  static auto* all = new Ends;
  return *all;
}

void install_fork_handlers() {
  static const int installed =
      ::pthread_atfork([] { ends().mutex.lock(); }, [] { ends().mutex.unlock(); },
                       [] {
                         for (const int number : ends().open) Fd(number).reset();
                         ends().open.clear();
                         ends().mutex.unlock();
                       });
  (void)installed;
}

void carry(TlsConnection& connection, Fd& plain) {
  connection.relay(plain);
  // Still open here, so that a child that is forked now closes nothing else by these numbers.
  std::lock_guard lock(ends().mutex);
  ends().open.erase(connection.descriptor());
  ends().open.erase(plain.get());
  plain.reset();
  connection.close();
}

}  // namespace

Result<Fd> open_tunnel(Fd socket, const std::string& host, const std::string& authority_file,
                       transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const TlsContext context, TlsContext::client(authority_file));
  FARGPU_ASSIGN_OR_RETURN(TlsConnection connection,
                          TlsConnection::connect(context, std::move(socket), host, deadline));
  Fd ours, plain;
  FARGPU_RETURN_IF_ERROR(descriptors::make_pair(SOCK_STREAM, ours, plain));
  install_fork_handlers();
  const int numbers[] = {connection.descriptor(), plain.get()};
  {
    std::lock_guard lock(ends().mutex);
    for (const int number : numbers) ends().open.insert(number);
  }
  try {
    Thread([connection = std::move(connection), plain = std::move(plain)]() mutable {
      carry(connection, plain);
    }).detach();
  } catch (const std::system_error& error) {
    std::lock_guard lock(ends().mutex);
    for (const int number : numbers) ends().open.erase(number);
    return Status(StatusCode::kSystem,
                  std::string("cannot start the thread of a TLS connection: ") + error.what());
  }
  return ours;
}

}  // namespace fargpu::tls
