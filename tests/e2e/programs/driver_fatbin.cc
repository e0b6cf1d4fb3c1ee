// Driver API with a file that nvcc made: driver_fatbin FILE (a fatbin or PTX with the kernel
// `triple`).
#include <cuda.h>

#include <cstdio>
#include <vector>

#include "driver_check.h"

int main(int count, char** values) {
  if (count != 2) return 2;
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction triple;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxPushCurrent(context));
  CHECK(cuModuleLoad(&module, values[1]));
  CHECK(cuModuleGetFunction(&triple, module, "triple"));
  int n = 1000;
  std::vector<int> data(n);
  for (int i = 0; i < n; ++i) data[i] = i - 7;
  CUdeviceptr p;
  CHECK(cuMemAlloc(&p, n * sizeof(int)));
  CHECK(cuMemcpyHtoD(p, data.data(), n * sizeof(int)));
  void* arguments[] = {&p, &n};
  CHECK(cuLaunchKernel(triple, 8, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK(cuMemcpyDtoH(data.data(), p, n * sizeof(int)));
  for (int i = 0; i < n; ++i) {
    if (data[i] != 3 * (i - 7)) return 3;
  }
  std::printf("driver_fatbin: right\n");
  return 0;
}
