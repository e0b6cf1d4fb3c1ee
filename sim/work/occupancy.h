// How many blocks of a kernel a multiprocessor holds at once, by the limits that the device
// reports.
#pragma once

#include <cstddef>

#include "sim/exec/engine.h"

namespace fargpu::sim {

class Device;

// 0: a block of this size does not fit at all.
int active_blocks(const Device& device, const KernelInfo& info, int block_size,
                  size_t dynamic_shared);
// Dynamic shared bytes that each of `blocks` blocks on one multiprocessor may use.
size_t available_shared(const Device& device, const KernelInfo& info, int blocks);

}  // namespace fargpu::sim
