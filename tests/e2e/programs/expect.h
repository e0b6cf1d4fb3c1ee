// What the end-to-end programs share: stop with a clear line on a CUDA error or a wrong value.
// Plain CUDA, nothing of fargpu.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                      \
  do {                                                                   \
    cudaError_t error_ = (call);                                         \
    if (error_ != cudaSuccess) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorName(error_));                            \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

#define EXPECT_ERROR(call, expected)                                                   \
  do {                                                                                 \
    cudaError_t error_ = (call);                                                       \
    if (error_ != (expected)) {                                                        \
      std::fprintf(stderr, "%s:%d: %s: %s instead of %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorName(error_), #expected);                               \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (0)
