#include "common/tls/tls_tunnel.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "common/base/signals_blocked.h"
#include "common/tls/tls_connection.h"

namespace fargpu::tls {
namespace {

// The descriptors of all tunnels. Never destroyed: their threads may outlive static destructors.
struct Descriptors {
  std::mutex mutex;
  std::set<int> open;
};
Descriptors& descriptors() {
  static auto* all = new Descriptors;
  return *all;
}

void install_fork_handlers() {
  static const int installed =
      ::pthread_atfork([] { descriptors().mutex.lock(); }, [] { descriptors().mutex.unlock(); },
                       [] {
                         for (const int descriptor : descriptors().open) ::close(descriptor);
                         descriptors().open.clear();
                         descriptors().mutex.unlock();
                       });
  (void)installed;
}

void carry(TlsConnection connection, Fd plain) {
  connection.relay(plain);
  // Still open here, so that a child that is forked now closes nothing else by these numbers.
  std::lock_guard lock(descriptors().mutex);
  descriptors().open.erase(connection.descriptor());
  descriptors().open.erase(plain.get());
  plain.reset();
  connection.close();
}

}  // namespace

Result<Fd> open_tunnel(Fd socket, const std::string& host, const std::string& authority_file,
                       transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const TlsContext context, TlsContext::client(authority_file));
  FARGPU_ASSIGN_OR_RETURN(TlsConnection connection,
                          TlsConnection::connect(context, std::move(socket), host, deadline));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair", errno);
  Fd ours(ends[0]), plain(ends[1]);
  install_fork_handlers();
  const int numbers[] = {connection.descriptor(), plain.get()};
  {
    std::lock_guard lock(descriptors().mutex);
    descriptors().open.insert(std::begin(numbers), std::end(numbers));
  }
  try {
    const SignalsBlocked blocked;
    std::thread(carry, std::move(connection), std::move(plain)).detach();
  } catch (const std::system_error& error) {
    std::lock_guard lock(descriptors().mutex);
    for (const int number : numbers) descriptors().open.erase(number);
    return Status(StatusCode::kSystem,
                  std::string("cannot start the thread of a TLS connection: ") + error.what());
  }
  return ours;
}

}  // namespace fargpu::tls
