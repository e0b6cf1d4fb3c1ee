// What both ends know of CUDA beyond cuda.h, and limits that they share. Pure functions.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string_view>

namespace fargpu::schema {

// Parameters of a kernel: what a driver takes at most (CUDA 12.1 and later).
inline constexpr size_t kMaxParameterBytes = 32764;
// What the ends tell each other at most: of a kernel, a launch, an image.
inline constexpr unsigned kMaxParameters = 4096;
inline constexpr size_t kFunctionAttributes = 17;  // CU_FUNC_ATTRIBUTE_* 0 .. 16
inline constexpr unsigned kMaxLaunchAttributes = 32;
inline constexpr unsigned kMaxLogBytes = 64 << 10;
inline constexpr size_t kMaxNamesBytes = 1 << 20;
// So many graphs may be inside of each other.
inline constexpr unsigned kMaxGraphDepth = 16;

// How a stream is made, for fgStreamCreate.
enum StreamKind : unsigned { kPlainStream, kStreamWithPriority, kStreamOfGreenContext };

// Whether a device of this name is an instance of a GPU (MIG). The text of its UUID, and what
// CUDA_VISIBLE_DEVICES wants, then begins with "MIG-".
inline bool is_instance(std::string_view name) { return name.find(" MIG ") != name.npos; }

// Whether the stream waits at this operation.
inline bool is_wait(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

}  // namespace fargpu::schema
