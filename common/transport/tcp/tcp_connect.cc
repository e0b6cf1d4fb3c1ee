// Connecting. By system calls: Asio would open descriptors of its own, with numbers that a program
// around us may have closed and still write to.
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/descriptors.h"
#include "common/base/since_load.h"
#include "common/host/thread.h"
#include "common/transport/poll.h"
#include "common/transport/tcp/tcp.h"
#include "common/transport/tcp/tcp_options.h"

namespace fargpu::transport {
namespace {

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

struct Addresses {
  std::vector<Address> all;
  int error = 0;         // of getaddrinfo()
  int system_error = 0;  // with EAI_SYSTEM
};

Addresses look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  Addresses found;
  const descriptors::StandardTaken taken;
  found.error =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &first);
  found.system_error = errno;
  if (found.error != 0) return found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    if (each->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    found.all.push_back(address);
  }
  ::freeaddrinfo(first);
  return found;
}

Status no_answer(const Endpoint& endpoint) {
  return Status(StatusCode::kTimeout,
                fmt::format("no answer from {} in time", endpoint.to_string()));
}

// A name server may take longer than the deadline: a thread of its own asks, and may be left
// behind.
Result<Addresses> look_up_name(const Endpoint& endpoint, Deadline deadline) {
  struct Question {
    std::mutex mutex;
    std::condition_variable answered;
    bool done = false;
    Addresses found;
  };
  const auto question = std::make_shared<Question>();
  Thread([question, endpoint] {
    Addresses found = look_up(endpoint, AI_ADDRCONFIG);
    const std::lock_guard lock(question->mutex);
    question->found = std::move(found);
    question->done = true;
    question->answered.notify_all();
  }).detach();
  std::unique_lock lock(question->mutex);
  const auto done = [&] { return question->done; };
  if (deadline == kNoDeadline) {
    question->answered.wait(lock, done);
  } else if (!question->answered.wait_until(lock, deadline, done)) {
    return no_answer(endpoint);
  }
  return std::move(question->found);
}

Result<Addresses> addresses_of(const Endpoint& endpoint, Deadline deadline) {
  // An address needs no thread.
  Addresses found = look_up(endpoint, AI_NUMERICHOST);
  if (found.error == EAI_NONAME) {
    FARGPU_ASSIGN_OR_RETURN(found, look_up_name(endpoint, deadline));
  }
  if (found.error != 0 || found.all.empty()) {
    const bool elsewhere = root_has_changed();
    return Status(
        elsewhere ? StatusCode::kSystem : StatusCode::kNotFound,
        fmt::format("cannot find host '{}': {}{}", endpoint.host,
                    found.error == EAI_SYSTEM ? std::strerror(found.system_error)
                                              : ::gai_strerror(found.error),
                    elsewhere ? "; the program has changed its root directory since it loaded "
                                "fargpu, and names are looked up by files of the new one: call "
                                "cuInit before that, or name the server by its address"
                              : ""));
  }
  return found;
}

// 0 and the connection, or an error number; ETIMEDOUT with `late` when the deadline passed.
int connect_to(const Address& address, Deadline deadline, Fd& connection, bool& late) {
  Fd socket = descriptors::make([&] {
    return ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  });
  if (!socket.valid()) return errno;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.length) !=
      0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    pollfd entry{socket.get(), POLLOUT, 0};
    const auto ready = poll_until(std::span(&entry, 1), deadline);
    if (!ready.ok()) return EIO;
    if (*ready == 0) {
      late = true;
      return ETIMEDOUT;
    }
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  connection = std::move(socket);
  return 0;
}

}  // namespace

Result<Fd> tcp_connect(const Endpoint& endpoint, Deadline deadline) try {
  FARGPU_ASSIGN_OR_RETURN(const Addresses found, addresses_of(endpoint, deadline));
  int error = 0;
  for (const Address& address : found.all) {
    Fd connection;
    bool late = false;
    error = connect_to(address, deadline, connection, late);
    if (late) return no_answer(endpoint);
    if (error != 0) continue;
    // The client needs no user timeout: it connects under a deadline, and then the channel watches.
    FARGPU_RETURN_IF_ERROR(set_tcp_options(connection.get(), kNoUserTimeout));
    return connection;
  }
  return Status(StatusCode::kLost,
                fmt::format("cannot connect to {}: {}; is fargpud running there?",
                            endpoint.to_string(), std::generic_category().message(error)));
} catch (const std::exception& error) {
  return Status(StatusCode::kSystem,
                fmt::format("cannot connect to {}: {}", endpoint.to_string(), error.what()));
}

}  // namespace fargpu::transport
