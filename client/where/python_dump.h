// The stack of the calling thread without the GIL, by Python's faulthandler.
//
// A thread that waits for the driver has mostly given the GIL away, and must not ask for it: its
// holder may wait for this call. Only the thread itself changes its frames, so that it may read
// them; faulthandler does just that, without references and locks, on a signal. Here its handler
// for a real-time signal that nothing used is called as a function; no signal is sent.
#pragma once

#include <optional>
#include <vector>

#include "client/where/python_api.h"
#include "client/where/traceback.h"

namespace fargpu::client::where {

// Makes faulthandler ready: Python's first thread does it between two steps of its program, after
// this has returned. Any thread, with or without the GIL; later calls do nothing.
void ask_for_dumps(const PythonApi& api);
// Innermost first; empty where the thread runs no Python. Nothing: faulthandler is not ready.
std::optional<std::vector<Frame>> dumped_frames();
void forget_dumps_after_fork();

}  // namespace fargpu::client::where
