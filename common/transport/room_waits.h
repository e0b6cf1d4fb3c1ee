// How often the calling thread has waited until its peer took bytes, over all transports. commit()
// says by it that it did more than hand over: Channel counts such a call as one that waited.
#pragma once

#include <cstdint>

namespace fargpu::transport {

inline constinit thread_local uint64_t room_waits = 0;

}  // namespace fargpu::transport
