// Streams: creation, order, waits, queries, priorities, the default streams.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

int main() {
  CUcontext context = make_context();
  CUstream stream = nullptr, other = nullptr;
  SHOW(cuStreamCreate(nullptr, 0));
  SHOW(cuStreamCreate(&stream, 99));
  SHOW(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  SHOW(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  unsigned flags = 9;
  int priority = 9;
  CUcontext of = nullptr;
  unsigned long long id = 0, other_id = 0;
  SHOW(cuStreamGetFlags(other, &flags));
  VALUE(flags);
  SHOW(cuStreamGetFlags(nullptr, &flags));
  VALUE(flags);
  SHOW(cuStreamGetPriority(other, &priority));
  VALUE(priority);
  SHOW(cuStreamGetCtx(stream, &of));
  VALUE(of == context);
  SHOW(cuStreamGetId(stream, &id));
  SHOW(cuStreamGetId(other, &other_id));
  VALUE(id != other_id);
  SHOW(cuStreamQuery(stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuStreamSynchronize(CU_STREAM_LEGACY));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));

  CUmodule module;
  CUfunction spin, fill;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&spin, module, "spin"));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 4096));
  NEED(cuMemsetD32(p, 0, 1024));

  // Work of one stream is done in order; a wait orders two streams.
  unsigned count = 20000, value = 5, n = 1, got = 0;
  void* spin_arguments[] = {&p, &count};
  void* fill_arguments[] = {&p, &value, &n};
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SHOW(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_arguments, nullptr));
  SHOW(cuEventRecord(event, stream));
  SHOW(cuStreamWaitEvent(other, event, 0));
  SHOW(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, other, fill_arguments, nullptr));
  SHOW(cuStreamSynchronize(other));
  NEED(cuMemcpyDtoH(&got, p, 4));
  VALUE(got);
  SHOW(cuStreamQuery(stream));

  // The legacy default stream waits for blocking streams, and they for it.
  SHOW(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_arguments, nullptr));
  SHOW(cuMemsetD32Async(p, 17, 1, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  NEED(cuMemcpyDtoH(&got, p, 4));
  VALUE(got);

  SHOW(cuStreamWaitEvent(stream, nullptr, 0));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuStreamDestroy(other));
  SHOW(cuModuleUnload(module));
  return 0;
}
