#include "server/launch/silent_host.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace fargpu::server {
namespace {

bool read(int socket, tcp_info* info) {
  socklen_t bytes = sizeof *info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info, &bytes) == 0;
}

}  // namespace

SilentHost::SilentHost(int socket, std::chrono::milliseconds after)
    : socket_(socket), after_(after) {
  tcp_info info{};
  if (after.count() == 0 || !read(socket, &info)) return;
  pause_ = std::max(after / 8, std::chrono::milliseconds(1));
  const auto set = [socket](int name, std::chrono::milliseconds time) {
    const int seconds = std::max(1, static_cast<int>(time.count() / 1000));
    ::setsockopt(socket, IPPROTO_TCP, name, &seconds, sizeof seconds);
  };
  set(TCP_KEEPIDLE, after / 4);
  set(TCP_KEEPINTVL, after / 8);
}

// A silence alone means nothing: probes of a full window come ever more seldom. What was sent must
// be unanswered, too.
bool SilentHost::has_gone() {
  const auto now = std::chrono::steady_clock::now();
  if (pause_.count() < 0 || now - last_look_ < pause_) return false;
  last_look_ = now;
  tcp_info info{};
  if (!read(socket_, &info)) return false;
  const std::chrono::milliseconds silence(
      std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
  const bool unanswered = info.tcpi_probes != 0 || info.tcpi_retransmits != 0;
  return std::exchange(suspect_, unanswered && silence >= after_ * 3 / 4) && suspect_;
}

}  // namespace fargpu::server
