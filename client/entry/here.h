// Where a hand-written call happens, and what is around it: the session, the current context, the
// generated calls.
//
// Valid below an Entry that has checked `needs` of the description. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/call/call.h"
#include "client/entry/streams.h"
#include "client/object/context.h"
#include "client/process/session.h"
#include "generated/client/calls.h"

namespace fargpu::client {

// Where a call happens: arguments of every call_cuX.
struct Here {
  Session& session = current_session();
  uint16_t context = current_context_id();
};

// Waits until the worker has executed everything sent so far, and returns an error that this
// brought to light.
CUresult settle(Session& session);

}  // namespace fargpu::client
