// A host function behind a fault is not called, and nothing waits for it: later calls return, in
// that context, in new ones and on other devices.
#include "tests/orderings/check.h"

namespace {

volatile int called = 0;

void CUDA_CB note_call(void*) { called = 1; }

// Loads, looks up and runs a kernel; whether that works after a fault is not promised.
CUresult load_and_run(CUcontext context) {
  CU(cuCtxSetCurrent(context));
  CUmodule module;
  CUfunction spin;
  step("cuModuleLoadData after a fault");
  CUresult result = cuModuleLoadData(&module, kernels_ptx);
  step("cuModuleGetFunction after a fault");
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&spin, module, "spin");
  step("a launch after a fault");
  if (result == CUDA_SUCCESS) result = launch(spin, nullptr, 10u);
  step("cuCtxSynchronize of another context after a fault");
  return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

}  // namespace

int main() {
  begin();
  const int devices = device_count();
  CUcontext elsewhere = nullptr;
  if (devices > 1) CU(cuDevicePrimaryCtxRetain(&elsewhere, 1));
  const CUcontext beside = new_context();
  const CUcontext faulty = new_context();
  const CUfunction spin = kernel_of(load_kernels(), "spin");
  const CUfunction fault = kernel_of(load_kernels(), "fault");
  const CUstream stream = make_stream();
  // Queued while all is well, so that only the fault keeps it from being called.
  CU(launch(spin, stream, microseconds(0.2)));
  CU(launch(fault, stream));
  CU(cuLaunchHostFunc(stream, note_call, nullptr));

  // Nobody has asked about the failed context by now.
  if (elsewhere != nullptr) note("another device: %s", name_of(load_and_run(elsewhere)));
  note("another context: %s", name_of(load_and_run(beside)));
  CU(cuCtxSetCurrent(faulty));
  step("cuCtxSynchronize of the failed context");
  const CUresult synchronised = cuCtxSynchronize();
  if (synchronised != CUDA_ERROR_ILLEGAL_ADDRESS)
    wrong("cuCtxSynchronize after a fault gave %s", name_of(synchronised));
  step("cuLaunchHostFunc in a failed context");
  HOLDS(cuLaunchHostFunc(stream, note_call, nullptr) != CUDA_SUCCESS);
  step("cuCtxDestroy of the failed context");
  note("cuCtxDestroy: %s", name_of(cuCtxDestroy(faulty)));
  CUcontext after = nullptr;
  step("cuCtxCreate after a fault");
  const CUresult created = cuCtxCreate(&after, nullptr, 0, 0);
  note("a new context: %s", name_of(created == CUDA_SUCCESS ? load_and_run(after) : created));
  if (elsewhere != nullptr) note("another device: %s", name_of(load_and_run(elsewhere)));
  if (called) wrong("the host function was called although its context had failed");
  right();
}
