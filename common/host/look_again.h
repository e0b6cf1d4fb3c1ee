// How long a thread of ours sleeps on descriptors, in a process that is not ours, before it asks
// descriptors::own(): the program may have closed the descriptor that would wake it.
#pragma once

#include <chrono>

namespace fargpu::descriptors {

constexpr std::chrono::seconds kLookAgain{1};

}  // namespace fargpu::descriptors
