// A device whose compute mode lets nobody have a context: every way to get one fails at once.
#include "tests/conformance/conformance.h"

int main() {
  NEED(cuInit(0));
  CUdevice device = 0;
  NEED(cuDeviceGet(&device, 0));
  int mode = 0;
  SHOW(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
  VALUE(mode == CU_COMPUTEMODE_PROHIBITED);
  CUcontext context = nullptr;
  for (int round = 0; round < 2; ++round) SHOW(cuDevicePrimaryCtxRetain(&context, device));
  VALUE(context == nullptr);
  unsigned flags = 9;
  int active = 9;
  SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
  VALUE(active);
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuCtxCreate(&context, nullptr, 0, device));
  CUdeviceptr pointer = 0;
  SHOW(cuMemAlloc(&pointer, 16));
  return 0;
}
