// The two helpers all examples share: stop with a clear line on a CUDA error, and report the
// outcome of the self-check.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                      \
  do {                                                                   \
    cudaError_t error_ = (call);                                         \
    if (error_ != cudaSuccess) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(error_));                          \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)

// Prints "<name>: right" and returns 0, or how many values are wrong and returns 1.
inline int report(const char* name, long wrong) {
  if (wrong == 0) {
    std::printf("%s: right\n", name);
    return 0;
  }
  std::printf("%s: %ld values are WRONG\n", name, wrong);
  return 1;
}
