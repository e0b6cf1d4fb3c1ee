// How contexts end in the worker, and the parts of their ids. On the executor's thread.
#pragma once

#include <functional>

#include "server/manual/manual.h"

namespace fargpu::server {

// Ids 1 .. 255 belong to primary contexts, in the order of devices.
inline constexpr uint32_t kFirstCreatedContext = 256;
// Of one session, primary ones included: each takes memory of its device, which is not charged.
inline constexpr size_t kMostContexts = 64;
inline bool is_created_context(uint32_t id) {
  return id >= kFirstCreatedContext && id <= UINT16_MAX;
}
inline uint16_t primary_context_of(CUdevice device) { return static_cast<uint16_t>(device + 1); }

// When the context is idle: it goes from our tables, and a primary one's green contexts with it.
// Then `end` ends it in the driver (which takes its time, so off the thread), then the reply.
void end_context_when_idle(const LaterReply& later, uint16_t id,
                           std::function<CUresult(CUcontext)> end);

}  // namespace fargpu::server
