// CUDA_LAUNCH_BLOCKING: kernel launches wait for their kernels. A driver reads it when a context is
// made; so does this, and the newest context decides for all.
#pragma once

#include <atomic>

namespace fargpu::client {

inline std::atomic<bool> launches_block{false};

// A context is being made. Any thread.
void read_launch_blocking();

}  // namespace fargpu::client
