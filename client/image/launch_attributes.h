// Attributes of a launch that the driver may refuse: impossible clusters, unknown attributes, wrong
// values. Natively the launch itself returns the error, and only the driver knows all its rules. So
// the first launch of a function with certain attributes waits for the driver's answer; later
// launches with the same attributes are sent without waiting.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "client/image/launch.h"
#include "client/object/image_records.h"

namespace fargpu::client {

// A key of everything on which the driver's answer depends: the attributes without their events,
// the context, the block, the shared memory, and whether the grid consists of whole clusters. Never
// 0.
uint64_t attributes_key(std::span<const CUlaunchAttribute> attributes, const LaunchShape& shape,
                        const Context& context);

// Whether the driver has accepted a launch of the function with this key. Any thread.
bool admitted_before(Function& function, uint64_t key);
void remember_admitted(Function& function, uint64_t key);

}  // namespace fargpu::client
