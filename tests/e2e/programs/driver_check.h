// What end-to-end programs of the driver API share: main() ends with a clear line on a CUDA error.
// Plain CUDA, nothing of fargpu.
#pragma once

#include <cuda.h>

#include <cstdio>

#define CHECK(call)                                                              \
  do {                                                                           \
    CUresult result_ = (call);                                                   \
    if (result_ != CUDA_SUCCESS) {                                               \
      const char* name_ = "?";                                                   \
      cuGetErrorName(result_, &name_);                                           \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_); \
      return 1;                                                                  \
    }                                                                            \
  } while (0)
