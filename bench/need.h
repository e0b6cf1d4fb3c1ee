// NEED(call): ends a program of this folder, with the call and its error, if the call fails.
#pragma once

#include <cuda_runtime.h>

#include <cerrno>  // program_invocation_short_name
#include <cstdio>
#include <cstdlib>

inline void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               cudaGetErrorString(result));
  std::exit(1);
}
#define NEED(call) require(call, #call)
