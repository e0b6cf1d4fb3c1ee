// Host memory that this library pins for all devices of the process: shared with the worker where
// both are on one host, else from addresses that the worker can mirror. Any thread; needs a current
// context.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "client/memory/address_map.h"

namespace fargpu::client {

class Session;

// `bytes`: not 0. `flags`: CU_MEMHOSTALLOC_*. The memory is of the current context.
CUresult allocate_pinned(size_t bytes, unsigned flags, void** memory);
// What is not shared, when the session does not use it any more.
void free_pinned(Session& session, void* memory, size_t bytes);

// The other servers' sessions learn of memory of one session, and that it ends. A server that has
// something else at its addresses says so in the log; copies work all the same.
void enter_elsewhere(const Region& region);
void withdraw_elsewhere(const Region& region);
// The session's server and adapter forget the memory. The first error of both.
CUresult withdraw_here(Session& session, const Region& region);
// Memory that was registered in the context is about to be ordinary memory again: servers and
// adapters forget it.
void end_registrations_of(const Context& context);

}  // namespace fargpu::client
