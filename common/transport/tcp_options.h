// Socket options of every TCP connection of ours.
#pragma once

#include "common/base/status.h"

namespace fargpu::transport {

// No delay (frames are batched by us), keepalive, and a bound on unacknowledged data: a peer whose
// host or network is gone is noticed within about a minute, idle or not.
Status set_tcp_options(int descriptor);

}  // namespace fargpu::transport
