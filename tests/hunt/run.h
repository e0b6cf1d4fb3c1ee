// Runs a program on whatever libcuda.so.1 is there, and checks what it reads.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

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

// What is done wrongly on purpose: a checker must notice each.
enum class Mistake {
  kNone,
  kWaits,      // waits for events are left out
  kEdges,      // graphs are built without their edges, captured without waits between streams
  kParams,     // changes of executable graphs are left out
  kLaunches,   // graphs are launched in a stream of their own
  kHostNodes,  // host nodes write nothing
};

// Empty: all reads were right. Otherwise what was wrong first.
std::string run(const Device& device, const Program& program, const Allowed& allowed,
                Mistake mistake);

// Which operation each thread is in, for a program that hangs. From a signal handler too: writes
// to standard output.
void show_positions();

}  // namespace fargpu::hunt
