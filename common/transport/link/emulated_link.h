// A link emulator: makes any transport as slow as a link with a given round trip and bandwidth, to
// see how an application would fare there.
//
// One end does it for both directions. Every frame takes bytes / bandwidth to pass, in each
// direction, one behind the other; the round trip is added to what arrives. That the way to the
// peer gets none of it cannot be noticed at this end: it is as if the peer's clock were half a
// round trip behind. The link comes on top of what the transport itself takes: emulate it over the
// fastest one (shm).
//
// Sending: a frame whose passing ends within microseconds goes out at once; others are copied and
// leave from a thread of their own when their time comes. At most kBacklogBytes wait there, then
// reserve() and commit() wait, as with a socket's buffer. Receiving: frames are taken in as they
// come, held until their time, and delivered then. The last moments before a time are waited for
// without sleeping, at the price of CPU time. What goes around frames (descriptors, remote memory)
// is hidden, for it would go around the link. Thread rules as in transport.h.
#pragma once

#include <memory>

#include "common/transport/link/link_settings.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

std::unique_ptr<Transport> emulate_link(std::unique_ptr<Transport> transport,
                                        const LinkSettings& settings);

}  // namespace fargpu::transport
