// Checked access to the memory of a device program: every address is inside an allocation, shared
// memory, the lane's local memory or the kernel's parameters, and aligned to its size, or the grid
// ends with a fault.
#pragma once

#include <string>

#include "sim/exec/machine.h"
#include "sim/ptx/types.h"

namespace fargpu::sim {

// Host address of `bytes` at `address` in `space` as `lane` sees them; null after a fault.
uint8_t* resolve_lane(Exec& x, const Instr& in, ptx::Space space, uint64_t address, unsigned bytes,
                      bool write, uint32_t lane);
// The same for any number of bytes; `align` is a power of two.
uint8_t* resolve_range(Exec& x, const Instr& in, ptx::Space space, uint64_t address, unsigned bytes,
                       unsigned align, bool write, uint32_t lane);
// The start of the lane's local memory.
uint8_t* local_base(Exec& x, uint32_t lane);
// Zero-terminated text at a generic address; false after a fault.
bool read_string(Exec& x, const Instr& in, uint64_t address, uint32_t lane, std::string& text);

}  // namespace fargpu::sim
