// The application's mapped memory and the worker's mirrors of it (Pages) are made equal.
//
// Calls say that they need it by Submission and Synchronisation (submission.h). These are steps,
// for what is no call of its own. Each costs one relaxed load while no memory is exposed
// (exposure.h). Any thread; no context is needed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "client/transfer/submission.h"

namespace fargpu::client {

struct Context;
class Session;

// Before a call that waits for work: a stream may wait for a value that the application has stored.
CUresult before_wait(Session& session);
// What device code wrote comes back. `done`: as idle_mark() gave it before the wait.
CUresult after_synchronisation(Session& session, std::optional<uint64_t> done = std::nullopt);
// A wait for a value in host memory was put into the stream. From now on a thread sends such values
// soon after the application has stored them.
void watch_values(Session& session, CUstream stream);
// Before a context ends: what its work wrote would go with it. Waits for that work.
void before_context_ends(Session& session, const Context& context);
// Before a wait for everything in a context: all work that is awaited then. nullopt when other work
// may run on.
std::optional<uint64_t> idle_mark(Session& session);

}  // namespace fargpu::client
