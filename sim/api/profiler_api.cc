// The profiler controls have nothing to control.
// Its declarations, unlike those of cuda.h, do not say that they are exported.
#pragma GCC visibility push(default)
#include <cudaProfiler.h>
#pragma GCC visibility pop

#include "sim/object/api.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuProfilerStart(void) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuProfilerStop(void) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}
