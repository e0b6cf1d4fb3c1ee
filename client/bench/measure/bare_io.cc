#include "client/bench/measure/bare_io.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "client/bench/figures/timing.h"
#include "client/bench/measure/bare.h"

namespace fargpu::bench {

namespace {

// After so long without a byte an end sleeps, spinning or not.
constexpr auto kSpin = std::chrono::milliseconds(2);
// After so long without a byte the other end counts as gone.
constexpr int kLongestWaitMs = 60'000;

bool wait_for(int socket, short events) {
  pollfd wait{socket, events, 0};
  return ::poll(&wait, 1, kLongestWaitMs) != 0;
}

// Waits as bare_ends_spin() says: `step` moves some bytes and does not wait.
template <typename Step>
bool move_all(int socket, short events, size_t bytes, const Step& step) {
  const bool spins = bare_ends_spin();
  Clock::time_point idle_since{};
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = step(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
      idle_since = {};
      continue;
    }
    if (moved == 0) return false;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    const Clock::time_point now = Clock::now();
    if (idle_since == Clock::time_point{}) idle_since = now;
    if ((!spins || now - idle_since > kSpin) && !wait_for(socket, events)) return false;
  }
  return true;
}

}  // namespace

bool send_all(int socket, std::span<const char> bytes) {
  return move_all(socket, POLLOUT, bytes.size(), [&](size_t done) {
    return ::send(socket, bytes.data() + done, bytes.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

bool receive_all(int socket, std::span<char> room) {
  return move_all(socket, POLLIN, room.size(), [&](size_t done) {
    return ::recv(socket, room.data() + done, room.size() - done, MSG_DONTWAIT);
  });
}

bool send_total(int socket, uint64_t total, std::span<const char> buffer) {
  while (total > 0) {
    const size_t part = std::min<uint64_t>(total, buffer.size());
    if (!send_all(socket, buffer.first(part))) return false;
    total -= part;
  }
  return true;
}

bool receive_total(int socket, uint64_t total, std::span<char> buffer) {
  while (total > 0) {
    const size_t part = std::min<uint64_t>(total, buffer.size());
    if (!receive_all(socket, buffer.first(part))) return false;
    total -= part;
  }
  return true;
}

}  // namespace fargpu::bench
