// A library for LD_PRELOAD that stands in front of one driver function, as profilers do: every
// direct call of cuMemAlloc_v2 fails.
#include <cuda.h>

extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr*,
                                                                                 size_t) {
  return CUDA_ERROR_ECC_UNCORRECTABLE;
}
