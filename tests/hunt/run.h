// Runs a program on whatever libcuda.so.1 is there, and checks what it reads.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "tests/hunt/meeting.h"
#include "tests/hunt/mistake.h"
#include "tests/hunt/order.h"
#include "tests/hunt/program.h"

namespace fargpu::hunt {

// What all programs of this process use: a context, and the image with the kernels.
struct Device {
  CUcontext context = nullptr;
  CUfunction fill = nullptr, counted = nullptr, copy = nullptr, spin = nullptr;
};
// Ends the process with 2 when CUDA does not work at all.
Device open_device();

// Empty: all reads were right. Otherwise what was wrong first. `meeting`: with the other process of
// a program that has two; `process`: which this is.
std::string run(const Device& device, const Program& program, const Allowed& allowed,
                Mistake mistake, Meeting* meeting, int process);

// Which operation each thread is in, for a program that hangs. From a signal handler too: writes
// to standard output.
void show_positions();

}  // namespace fargpu::hunt
