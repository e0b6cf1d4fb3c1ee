// Contexts: the stack of a thread, created and primary contexts, what happens after one is gone.
#include "tests/conformance/conformance.h"

int main() {
  CUcontext context = nullptr, current = nullptr, popped = nullptr;
  CUdevice device = 0;
  SHOW(cuCtxGetCurrent(&current));
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == nullptr);
  SHOW(cuCtxGetDevice(&device));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxPopCurrent(&popped));
  CUdeviceptr pointer = 0;
  SHOW(cuMemAlloc(&pointer, 16));
  SHOW(cuCtxCreate(&context, nullptr, 0, 99));
  SHOW(cuCtxCreate(nullptr, nullptr, 0, device));
  SHOW(cuCtxCreate(&context, nullptr, 0, device));
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == context);
  unsigned flags = 77, version = 0;
  SHOW(cuCtxGetFlags(&flags));
  SHOW(cuCtxGetApiVersion(context, &version));
  VALUE(version);

  CUcontext second = nullptr;
  SHOW(cuCtxCreate(&second, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, device));
  SHOW(cuCtxGetFlags(&flags));
  VALUE(flags & CU_CTX_SCHED_MASK);
  SHOW(cuCtxPopCurrent(&popped));
  VALUE(popped == second);
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == context);
  SHOW(cuCtxPushCurrent(second));
  SHOW(cuCtxSetCurrent(context));  // replaces the top
  SHOW(cuCtxPopCurrent(&popped));
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == context);
  SHOW(cuCtxPushCurrent(nullptr));
  SHOW(cuCtxDestroy(second));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxDestroy(nullptr));

  unsigned primary_flags = 9;
  int active = 9;
  SHOW(cuDevicePrimaryCtxGetState(device, &primary_flags, &active));
  VALUE(active);
  CUcontext primary = nullptr, again = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&primary, device));
  SHOW(cuDevicePrimaryCtxRetain(&again, device));
  VALUE(primary == again);
  SHOW(cuDevicePrimaryCtxGetState(device, &primary_flags, &active));
  VALUE(active);
  SHOW(cuCtxSetCurrent(primary));
  SHOW(cuMemAlloc(&pointer, 1024));
  SHOW(cuCtxGetDevice(&device));
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuMemFree(pointer));
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuDevicePrimaryCtxGetState(device, &primary_flags, &active));
  VALUE(active);
  // What needs no context works while one that nobody retains is current: runtimes before CUDA 12
  // ask about devices so.
  int can = 9;
  CUmemoryPool pool = nullptr;
  SHOW(cuDeviceCanAccessPeer(&can, device, device));
  VALUE(can);
  SHOW(cuDeviceGetDefaultMemPool(&pool, device));
  SHOW(cuDevicePrimaryCtxRetain(&primary, 42));

  // A reset empties the context; its references stay.
  SHOW(cuDevicePrimaryCtxReset(device));
  for (int round = 0; round < 2; ++round) {
    SHOW(cuDevicePrimaryCtxRetain(&again, device));
    VALUE(primary == again);
    SHOW(cuMemAlloc(&pointer, 1024));
    SHOW(cuDevicePrimaryCtxReset(device));
    SHOW(cuDevicePrimaryCtxGetState(device, &primary_flags, &active));
    VALUE(active);
    SHOW(cuMemAlloc(&pointer, 1024));
    SHOW(cuDevicePrimaryCtxReset(device));
  }
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuDevicePrimaryCtxRelease(device));

  SHOW(cuCtxSetCurrent(context));
  size_t limit = 0;
  SHOW(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
  SHOW(cuCtxGetLimit(&limit, static_cast<CUlimit>(99)));
  for (int i = 0; i < 2; ++i) {
    SHOW(cuCtxGetLimit(&limit, CU_LIMIT_CIG_ENABLED));
    VALUE(limit);
  }
  int least = 0, greatest = 0;
  SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
  VALUE(least);
  VALUE(greatest);
  unsigned long long id = 0, other_id = 0;
  SHOW(cuCtxGetId(context, &id));
  SHOW(cuCtxGetId(nullptr, &other_id));
  VALUE(id == other_id);
  SHOW(cuCtxDestroy(context));
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == nullptr);
  SHOW(cuMemAlloc(&pointer, 16));
  return 0;
}
