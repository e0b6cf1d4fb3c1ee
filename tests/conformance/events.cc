// Events: states, timing, errors.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

int main() {
  make_context();
  CUevent a = nullptr, b = nullptr, untimed = nullptr, fresh = nullptr;
  SHOW(cuEventCreate(nullptr, 0));
  SHOW(cuEventCreate(&a, 0xffff));
  SHOW(cuEventCreate(&a, CU_EVENT_DEFAULT));
  SHOW(cuEventCreate(&b, CU_EVENT_BLOCKING_SYNC));
  SHOW(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  SHOW(cuEventCreate(&fresh, CU_EVENT_DEFAULT));
  SHOW(cuEventQuery(fresh));  // never recorded: done
  SHOW(cuEventSynchronize(fresh));
  float milliseconds = -1;
  SHOW(cuEventElapsedTime(&milliseconds, a, b));

  CUmodule module;
  CUfunction spin;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&spin, module, "spin"));
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 64));
  unsigned count = 50000;
  void* arguments[] = {&p, &count};
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuEventRecord(a, stream));
  SHOW(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  SHOW(cuEventRecord(b, stream));
  SHOW(cuEventRecord(untimed, stream));
  SHOW(cuEventSynchronize(b));
  SHOW(cuEventQuery(a));
  SHOW(cuEventElapsedTime(&milliseconds, a, b));
  VALUE(milliseconds > 0);
  SHOW(cuEventElapsedTime(&milliseconds, b, a));
  VALUE(milliseconds < 0);
  SHOW(cuEventElapsedTime(&milliseconds, a, untimed));
  SHOW(cuEventElapsedTime(&milliseconds, a, fresh));
  SHOW(cuEventRecordWithFlags(a, nullptr, 0));
  SHOW(cuEventSynchronize(a));
  SHOW(cuEventSynchronize(nullptr));
  SHOW(cuEventDestroy(a));
  SHOW(cuEventRecord(nullptr, stream));
  SHOW(cuEventDestroy(b));
  SHOW(cuEventDestroy(untimed));
  SHOW(cuEventDestroy(fresh));
  SHOW(cuStreamDestroy(stream));
  return 0;
}
