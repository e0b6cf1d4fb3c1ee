// The profiler controls have nothing to control.
#include <cudaProfiler.h>

#include "sim/driver/api.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuProfilerStart(void) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuProfilerStop(void) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}
