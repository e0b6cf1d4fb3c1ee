// Profiler control: there is no profiler to control on this side.
#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuProfilerInitialize(const char*, const char*, CUoutput_mode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult manual_cuProfilerStart() { return CUDA_SUCCESS; }
CUresult manual_cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace fargpu::client
