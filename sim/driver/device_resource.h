// The resources of green contexts: the multiprocessors of a simulated GPU, and how they are split
// into groups. A CUdevResource is a value; its padding says which part of which split it is, so
// that an invented one is recognised. Kernels use the whole GPU in any case. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::sim {

class Device;

struct Partition {
  int device = 0;      // ordinal
  uint64_t split = 0;  // number of the split that made it; 0: all of a context's
  unsigned first = 0;  // multiprocessor
  unsigned count = 0;
  unsigned min_size = 0;   // sm.minSmPartitionSize
  unsigned alignment = 0;  // sm.smCoscheduledAlignment
};

// All multiprocessors of the device.
Partition whole(const Device& device);
CUdevResource to_resource(const Partition& partition);
// False: the structure is no multiprocessors. Their count may have been changed.
bool from_resource(const CUdevResource& resource, Partition* partition);
// Groups of at least `wanted` multiprocessors, `groups` of them at most: how many there are. `size`
// becomes the size of each.
unsigned split_groups(const Partition& input, unsigned flags, unsigned wanted, unsigned groups,
                      unsigned* size);
uint64_t next_split();

}  // namespace fargpu::sim
