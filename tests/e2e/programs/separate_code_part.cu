#include "separate_code.h"

__device__ int offsets[kOffsets] = {10, 20, 30, 40};
__device__ int twice(int x) { return 2 * x; }
