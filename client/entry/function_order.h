// Which host functions work of a stream may come behind: those of the stream, and those behind
// which it has been put by an event, a graph or, in a blocking stream, the legacy stream. A copy
// that is behind none may read its source in the call (client/copy/copy_plan.h).
//
// Each is called before the frame is sent that puts something into the stream. Too many functions
// are no harm: the worker then asks for the bytes. Costs a load while all functions have returned:
// those that come are in no order with it. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/stream/functions_ahead.h"

namespace fargpu::client {

struct Event;
class Session;

// Whether a function has not returned.
bool any_function(Session& session);
// Functions up to this id are in the stream, or something that waits for them.
void put_behind(Session& session, CUstream stream, uint64_t last);
// The event is recorded in the stream, and by nothing else before it is recorded again.
void record_behind(Session& session, CUstream stream, Event& event);
// The stream waits for the event.
void wait_behind(Session& session, CUstream stream, const Event& event);
// What is launched in the stream comes after its launches in others.
void launch_behind(Session& session, CUstream stream, FunctionsAhead& launched);
// The last function that may come before what is put into the stream now. 0: all of those have
// returned.
uint64_t functions_before(Session& session, CUstream stream);

}  // namespace fargpu::client
