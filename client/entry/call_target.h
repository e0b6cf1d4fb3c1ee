// What hand-written halves need: where a call goes (`CallTarget`, client/entry/call.h), what is
// around it.
//
// Valid below a CallScope that has checked `needs` of the description. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/entry/call.h"
#include "client/entry/streams.h"
#include "client/object/context.h"
#include "client/process/session.h"

namespace fargpu::client {

// The context in which `handle` lives, of whatever kind and session it is; nullptr: none, or no
// handle.
Context* context_of_handle(const void* handle);

// Whether device memory or reserved addresses of another session are among these bytes.
bool taken_by_other(Session& session, uint64_t address, uint64_t bytes);

// Waits until the worker has executed everything sent so far, and returns an error that this
// brought to light.
CUresult flush(Session& session);

}  // namespace fargpu::client
