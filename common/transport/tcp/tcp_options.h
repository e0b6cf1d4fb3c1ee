// Socket options of every TCP connection of ours.
#pragma once

#include <chrono>

#include "common/base/status.h"

namespace fargpu::transport {

// For an end that decides by itself whether its peer is alive.
inline constexpr std::chrono::milliseconds kNoUserTimeout{0};
// Linux applies it to a closed window too, so it must leave a busy peer as much time as
// StreamOptions::stall_timeout does.
inline constexpr std::chrono::milliseconds kUserTimeout{60000};

// No delay (frames are batched by us), keepalive, and a bound on unacknowledged data: a peer whose
// host or network is gone is noticed within about a minute, idle or not.
Status set_tcp_options(int descriptor, std::chrono::milliseconds user_timeout);

}  // namespace fargpu::transport
