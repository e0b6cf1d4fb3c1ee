// The end of a process that takes time, as that of a process with contexts does on a real GPU: the
// system takes the contexts down before the process can be waited for. However the process ends,
// but for a signal, its memory is taken until then.
//
// The filter of system calls that does this is inherited by the processes that are started later;
// they must not outlive this one, and end at once themselves.
#pragma once

#include <chrono>
#include <functional>

#include "common/base/status.h"

namespace fargpu::sim {

// From now on the process ends `time` after the request to end, if `slow` returns true then; called
// on a thread of its own. Once in a process. kSystem: the system does not let it.
Status end_slowly(std::chrono::milliseconds time, std::function<bool()> slow);

}  // namespace fargpu::sim
