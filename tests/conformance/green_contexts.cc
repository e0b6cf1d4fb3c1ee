// Green contexts: what they are made from, their streams, and what they share with their primary
// context.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

void show(const CUdevResource& resource) {
  std::printf("    type %d: %u multiprocessors, at least %u, by %u\n",
              static_cast<int>(resource.type), resource.sm.smCount, resource.sm.minSmPartitionSize,
              resource.sm.smCoscheduledAlignment);
}

void resources(CUdevice device, CUdevResource* groups, CUdevResource* remaining) {
  CUdevResource all{}, other{};
  SHOW(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  show(all);
  SHOW(cuDeviceGetDevResource(device, nullptr, CU_DEV_RESOURCE_TYPE_SM));
  SHOW(cuDeviceGetDevResource(device, &other, CU_DEV_RESOURCE_TYPE_INVALID));
  SHOW(cuDeviceGetDevResource(99, &other, CU_DEV_RESOURCE_TYPE_SM));
  for (const unsigned least : {0u, 1u, 8u, 9u, 16u, all.sm.smCount, all.sm.smCount + 1}) {
    unsigned count = 77;
    std::printf("  in groups of %u\n", least);
    SHOW(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, least));
    VALUE(count);
  }
  unsigned count = 2;
  SHOW(cuDevSmResourceSplitByCount(groups, nullptr, &all, remaining, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(groups, &count, nullptr, remaining, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(groups, &count, &all, remaining, 64, 8));
  CUdevResource changed = all;
  changed.sm.smCount -= 8;
  SHOW(cuDevSmResourceSplitByCount(groups, &count, &changed, remaining, 0, 8));
  other = {};
  SHOW(cuDevSmResourceSplitByCount(groups, &count, &other, remaining, 0, 8));
  SHOW(cuDevSmResourceSplitByCount(groups, &count, &all, remaining, 0, 8));
  VALUE(count);
  for (unsigned i = 0; i < count; ++i) show(groups[i]);
  show(*remaining);
}

CUgreenCtx make_green(CUdevice device, CUdevResource* from, unsigned count) {
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  NEED(cuDevResourceGenerateDesc(&description, from, count));
  NEED(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

void wrong_calls(CUdevice device, CUdevResource* groups) {
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUdevResource none{};
  SHOW(cuDevResourceGenerateDesc(nullptr, groups, 1));
  SHOW(cuDevResourceGenerateDesc(&description, nullptr, 1));
  SHOW(cuDevResourceGenerateDesc(&description, &none, 1));
  SHOW(cuDevResourceGenerateDesc(&description, groups, 1));
  SHOW(cuGreenCtxCreate(nullptr, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxCreate(&green, nullptr, device, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxDestroy(green));
  SHOW(cuGreenCtxCreate(&green, description, 99, CU_GREEN_CTX_DEFAULT_STREAM));
  SHOW(cuGreenCtxCreate(&green, description, device, 0));
  SHOW(cuGreenCtxCreate(&green, description, device, 2));
}

// Whose the stream is.
void owners(const char* what, CUstream stream, CUgreenCtx green, CUcontext converted,
            CUcontext primary) {
  CUcontext context = nullptr;
  CUgreenCtx found = nullptr;
  std::printf("  %s\n", what);
  SHOW(cuStreamGetCtx(stream, &context));
  VALUE(context == converted);
  SHOW(cuStreamGetGreenCtx(stream, &found));
  VALUE(found == green);
  SHOW(cuStreamGetCtx_v2(stream, &context, &found));
  VALUE(context == primary);
  VALUE(found == green);
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUdevResource groups[2]{}, remaining{}, resource{};
  SHOW(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
  NEED(cuInit(0));
  resources(device, groups, &remaining);
  wrong_calls(device, groups);

  const CUgreenCtx first = make_green(device, &groups[0], 1);
  const CUgreenCtx second = make_green(device, groups, 2);
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
  VALUE(active);
  CUcontext current = nullptr, converted = nullptr, again = nullptr, other = nullptr;
  CUcontext primary = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == nullptr);
  SHOW(cuCtxFromGreenCtx(&converted, first));
  SHOW(cuCtxFromGreenCtx(&again, first));
  SHOW(cuCtxFromGreenCtx(&other, second));
  VALUE(converted == again);
  VALUE(converted == other);
  SHOW(cuCtxFromGreenCtx(nullptr, first));
  SHOW(cuGreenCtxGetDevResource(first, &resource, CU_DEV_RESOURCE_TYPE_SM));
  show(resource);
  SHOW(cuCtxGetDevResource(other, &resource, CU_DEV_RESOURCE_TYPE_SM));
  show(resource);
  unsigned long long id = 0, second_id = 0;
  SHOW(cuGreenCtxGetId(first, &id));
  SHOW(cuGreenCtxGetId(second, &second_id));
  VALUE(id != second_id);

  SHOW(cuDevicePrimaryCtxRetain(&primary, device));
  VALUE(converted == primary);
  SHOW(cuCtxSetCurrent(converted));
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == converted);
  CUdevice of_current = 77;
  SHOW(cuCtxGetDevice(&of_current));
  VALUE(of_current);
  SHOW(cuGreenCtxGetId(nullptr, &second_id));
  VALUE(id == second_id);
  SHOW(cuCtxDestroy(converted));

  CUstream stream = nullptr, blocking = nullptr;
  SHOW(cuGreenCtxStreamCreate(&stream, first, CU_STREAM_DEFAULT, 0));
  SHOW(cuGreenCtxStreamCreate(nullptr, first, CU_STREAM_NON_BLOCKING, 0));
  SHOW(cuGreenCtxStreamCreate(&stream, first, CU_STREAM_NON_BLOCKING, -1));
  SHOW(cuStreamCreate(&blocking, CU_STREAM_NON_BLOCKING));
  owners("a stream of the green context", stream, first, converted, primary);
  owners("one that was made while it was current", blocking, first, converted, primary);
  owners("its default stream", nullptr, first, converted, primary);

  // Modules, memory and events are the primary context's.
  CUmodule module = nullptr;
  NEED(cuModuleLoadData(&module, kKernels));
  CUfunction kernel = nullptr;
  NEED(cuModuleGetFunction(&kernel, module, "write_at"));
  CUdeviceptr memory = 0;
  NEED(cuMemAlloc(&memory, 4096));
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  unsigned value = 1;
  void* parameters[] = {&memory, &value};
  for (const CUstream each : {stream, blocking, CUstream{}}) {
    SHOW(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, each, parameters, nullptr));
    SHOW(cuStreamSynchronize(each));
    unsigned found = 0;
    SHOW(cuMemcpyDtoH(&found, memory, sizeof found));
    VALUE(found);
    ++value;
  }
  SHOW(cuGreenCtxRecordEvent(first, event));
  SHOW(cuGreenCtxWaitEvent(second, event));
  SHOW(cuEventRecord(event, stream));
  SHOW(cuEventSynchronize(event));
  SHOW(cuGreenCtxRecordEvent(first, nullptr));
  SHOW(cuCtxSynchronize());

  SHOW(cuCtxPushCurrent(other));
  SHOW(cuCtxPopCurrent(&current));
  VALUE(current == other);
  SHOW(cuCtxGetCurrent(&current));
  VALUE(current == converted);

  SHOW(cuStreamDestroy(blocking));
  SHOW(cuGreenCtxDestroy(first));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSetCurrent(primary));
  SHOW(cuEventQuery(event));
  SHOW(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  unsigned found = 0;
  SHOW(cuMemcpyDtoH(&found, memory, sizeof found));
  VALUE(found);
  SHOW(cuDevicePrimaryCtxRelease(device));
  SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
  VALUE(active);
  SHOW(cuGreenCtxDestroy(second));
  SHOW(cuDevicePrimaryCtxGetState(device, &flags, &active));
  VALUE(active);
  return 0;
}
