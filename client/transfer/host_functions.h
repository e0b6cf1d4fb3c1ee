// Functions of the application in streams: how they get there, and the thread that runs them
// (client/stream/host_calls.h). Any thread.
#pragma once

#include <cuda.h>

#include "client/entry/call_target.h"
#include "client/stream/host_calls.h"

namespace fargpu::client {

// The session's functions, whose thread runs. Nothing else adds any.
HostCalls& functions_of(Session& session);
// Puts a function of the application, or of ours, into its stream.
CUresult put_into_stream(const CallTarget& target, HostFunction function);

}  // namespace fargpu::client
