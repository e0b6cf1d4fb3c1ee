// What the two files of separate_code share.
#pragma once

constexpr int kOffsets = 4;
extern __device__ int offsets[kOffsets];
__device__ int twice(int x);
