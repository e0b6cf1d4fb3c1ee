// A link emulator: makes any transport as slow as a link with a given round trip and bandwidth, to
// show how an application would do there.
//
// One end emulates both directions. Every frame takes bytes / bandwidth to pass, in each direction,
// one behind the other. The whole round trip is added to arriving frames, nothing to leaving ones.
// This end cannot tell the difference: it is as if the peer's clock were half a round trip behind.
// The delay comes on top of the transport's own, so emulate over the fastest one (shm).
//
// Sending: a frame that passes within microseconds is sent at once. Others are copied and sent by a
// thread of the link when their time comes. At most kBacklogBytes wait there; then reserve() and
// commit() wait, as with a full socket buffer. Receiving: frames are read as they come, held until
// their time, then delivered. The last moments before that time are spent spinning, which costs CPU
// time. Connections with a common LinkWay share the bandwidth to the peer, each with its own queue
// and delay; the direction from the peer is not shared. Descriptors and remote memory are hidden,
// because they would bypass the link. Thread rules as in transport.h.
#pragma once

#include <memory>

#include "common/transport/link/link_settings.h"
#include "common/transport/link/link_way.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

std::unique_ptr<Transport> emulate_link(std::unique_ptr<Transport> transport,
                                        const LinkSettings& settings,
                                        std::shared_ptr<LinkWay> way = std::make_shared<LinkWay>());

}  // namespace fargpu::transport
