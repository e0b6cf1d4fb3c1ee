#include "server/worker/session_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "server/launch/silent_host.h"

namespace fargpu::server {

Result<std::unique_ptr<SessionWatch>> SessionWatch::start(int peer, Activity& activity,
                                                          std::function<void()> alive,
                                                          std::function<void()> stuck,
                                                          const Options& options,
                                                          WatchedCommands commands, int process) {
  Fd watched(::fcntl(peer, F_DUPFD_CLOEXEC, 0));
  if (!watched.valid()) return system_error("cannot watch the session's socket", errno);
  FARGPU_ASSIGN_OR_RETURN(EventFd waker, EventFd::create());
  return std::unique_ptr<SessionWatch>(
      new SessionWatch(std::move(watched), std::move(waker), activity, std::move(alive),
                       std::move(stuck), options, std::move(commands), process));
}

SessionWatch::SessionWatch(Fd peer, EventFd waker, Activity& activity, std::function<void()> alive,
                           std::function<void()> stuck, const Options& options,
                           WatchedCommands commands, int process)
    : peer_(std::move(peer)),
      waker_(std::move(waker)),
      activity_(activity),
      alive_(std::move(alive)),
      stuck_(std::move(stuck)),
      options_(options),
      commands_(std::move(commands)),
      process_(process) {
  activity_.waker_ = &waker_;
  thread_ = std::thread([this] { watch(); });
}

SessionWatch::~SessionWatch() {
  stopping_ = true;
  waker_.signal();
  thread_.join();
  activity_.waker_ = nullptr;
}

void SessionWatch::watch() {
  uint64_t seen = activity_.count_.load(std::memory_order_acquire);
  int quiet = 0;  // rounds in a row without any work
  SilentHost host(peer_.get(), options_.lost_after);
  while (!stopping_) {
    // The connection is watched for its end only. After two rounds without work the thread sleeps
    // without a timeout. A begin() that did not see `parked_`, which the first round sets, has
    // raised the count, and the second round sees that.
    pollfd descriptors[] = {{peer_.get(), POLLRDHUP, 0},
                            {waker_.get(), POLLIN, 0},
                            {commands_.descriptor, POLLIN, 0},
                            {process_, POLLIN, 0}};
    const int timeout =
        static_cast<int>((quiet >= 2 ? host.pause() : options_.alive_every).count());
    const int ready = ::poll(descriptors, std::size(descriptors), timeout);
    if (ready < 0 && errno != EINTR) return;
    if (ready > 0 && descriptors[0].revents != 0) break;
    if (ready > 0 && descriptors[3].revents != 0) {
      ::shutdown(peer_.get(), SHUT_RD);  // for the executor, which reads what has come
      break;
    }
    if (host.has_gone()) {
      log::warn("event=client-silent why=\"its host answers nothing\"");
      activity_.host_silent_.store(true, std::memory_order_release);
      ::shutdown(peer_.get(), SHUT_RDWR);
      break;
    }
    if (ready > 0) {
      waker_.drain();
      if (descriptors[2].revents != 0 && !commands_.take()) commands_.descriptor = -1;
      quiet = 0;
    }
    const uint64_t now = activity_.count_.load(std::memory_order_acquire);
    const bool idle = std::exchange(seen, now) == now && now % 2 == 0;
    if (ready != 0) continue;
    quiet = idle ? std::min(quiet + 1, 2) : 0;
    activity_.parked_.store(idle, std::memory_order_relaxed);
    // Also if many calls were executed: a ping waits behind them all, and each may wait for room in
    // the driver's queue.
    if (!idle) alive_();
  }
  activity_.peer_gone_.store(true, std::memory_order_relaxed);
  if (!stop_requested(options_.grace)) stuck_();
}

bool SessionWatch::stop_requested(std::chrono::milliseconds within) {
  const auto until = std::chrono::steady_clock::now() + within;
  while (!stopping_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd descriptors[] = {{waker_.get(), POLLIN, 0}, {commands_.descriptor, POLLIN, 0}};
    if (::poll(descriptors, std::size(descriptors), static_cast<int>(left.count())) <= 0) continue;
    waker_.drain();
    if (descriptors[1].revents != 0 && !commands_.take()) commands_.descriptor = -1;
  }
  return true;
}

}  // namespace fargpu::server
