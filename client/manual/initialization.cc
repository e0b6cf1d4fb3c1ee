// Start: cuInit connects; the version is the server's.
#include "client/manual/common.h"
#include "client/process/process.h"

namespace fargpu::client {

CUresult manual_cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Process::get().initialise();
}

CUresult manual_cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = Process::get().driver_version();
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
