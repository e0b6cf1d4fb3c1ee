// Every CUresult of cuda.h 13.0 with its name and the text that CUDA shows for it.
#pragma once

#include <cuda.h>

namespace fargpu::sim {

struct ErrorEntry {
  CUresult code;
  const char* name;
  const char* text;
};

// nullptr: no such code.
const ErrorEntry* find_error(CUresult code);

}  // namespace fargpu::sim
