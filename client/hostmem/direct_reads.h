// Whether the system may be reading into memory of this process past the program's mapping, so that
// neither a fault nor a page's state tells of it: with O_DIRECT, io_uring, or through file systems
// and devices that do so by themselves.
#pragma once

namespace fargpu::client {

// By the descriptors that are open now: true if one may be used so, or if they cannot be looked at.
// Not seen: reads whose descriptor was closed while they were under way. Costs about 2 us a
// descriptor. Any thread.
bool may_read_directly();

}  // namespace fargpu::client
