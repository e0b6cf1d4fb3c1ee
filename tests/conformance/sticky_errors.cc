// Execution errors stay with their context: every later call of it reports them; a new process is
// needed on a GPU, so the kind of error is an argument and the program ends after it: illegal,
// misaligned, trap.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

int main(int count, char** values) {
  const std::string kind = count > 1 ? values[1] : "illegal";
  make_context();
  CUmodule module;
  CUfunction write_at, trap;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&write_at, module, "write_at"));
  NEED(cuModuleGetFunction(&trap, module, "trap_now"));
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 4096));
  CUdeviceptr bad = kind == "misaligned" ? p + 1 : 0x10;
  unsigned value = 1;
  void* arguments[] = {&bad, &value};
  if (kind == "trap") {
    SHOW(cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  } else {
    SHOW(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  }
  SHOW(cuCtxSynchronize());
  CUdeviceptr q = 0;
  SHOW(cuMemAlloc(&q, 16));
  SHOW(cuMemcpyHtoD(p, &value, 4));
  SHOW(cuMemcpyDtoH(&value, p, 4));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CUevent event;
  SHOW(cuEventCreate(&event, 0));
  SHOW(cuMemFree(p));
  int devices = 0;
  SHOW(cuDeviceGetCount(&devices));  // needs no context
  return 0;
}
