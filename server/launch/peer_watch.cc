#include "server/launch/peer_watch.h"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <utility>

namespace fargpu::server {

using std::chrono::steady_clock;

Result<std::unique_ptr<PeerWatch>> PeerWatch::start(int socket, std::function<void()> gone,
                                                    std::chrono::milliseconds grace) {
  Fd peer(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!peer.valid()) return system_error("cannot watch a socket", errno);
  FARGPU_ASSIGN_OR_RETURN(EventFd end, EventFd::create());
  return std::unique_ptr<PeerWatch>(
      new PeerWatch(std::move(peer), std::move(end), std::move(gone), grace));
}

PeerWatch::PeerWatch(Fd peer, EventFd end, std::function<void()> gone,
                     std::chrono::milliseconds grace)
    : peer_(std::move(peer)), end_(std::move(end)), gone_(std::move(gone)), grace_(grace) {
  thread_ = std::thread([this] { watch(); });
}

PeerWatch::~PeerWatch() {
  end_.signal();
  thread_.join();
}

void PeerWatch::watch() {
  pollfd descriptors[] = {{end_.get(), POLLIN, 0}, {peer_.get(), POLLRDHUP, 0}};
  while (descriptors[1].revents == 0) {
    if (::poll(descriptors, 2, -1) < 0 && errno != EINTR) return;
    if (descriptors[0].revents != 0) return;
  }
  const auto until = steady_clock::now() + grace_;
  for (auto left = grace_; left.count() > 0;
       left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now())) {
    if (::poll(descriptors, 1, static_cast<int>(left.count())) > 0) return;
  }
  gone_();
}

}  // namespace fargpu::server
