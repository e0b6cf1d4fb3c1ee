// What is set and read back: of contexts, streams, functions, kernels, pools, the primary context;
// and what the driver says of the device and of occupancy.
#include <unistd.h>

#include "tests/conformance/by_name.h"
#include "tests/conformance/kernels.h"

namespace {

void of_contexts() {
  std::puts("contexts");
  CUfunc_cache cache{};
  CUsharedconfig shared{};
  SHOW(cuCtxGetCacheConfig(&cache));
  VALUE(cache);
  SHOW(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  SHOW(cuCtxGetCacheConfig(&cache));
  VALUE(cache);
  SHOW(call("cuCtxGetSharedMemConfig", &shared));
  VALUE(shared);
  SHOW(call("cuCtxSetSharedMemConfig", CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  SHOW(call("cuCtxGetSharedMemConfig", &shared));
  VALUE(shared);
  SHOW(cuCtxResetPersistingL2Cache());
  unsigned flags = 0;
  SHOW(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
  SHOW(cuCtxGetFlags(&flags));
  VALUE(flags);
  size_t limit = 0;
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  SHOW(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  VALUE(limit);
  CUexecAffinityParam affinity{};
  SHOW(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
}

// An event that all work of the context has led to, and work that waits for it.
void events_of_contexts(CUfunction spin) {
  std::puts("events of contexts");
  CUcontext context = nullptr;
  CUevent event = nullptr;
  CUstream first = nullptr, second = nullptr;
  CUdeviceptr word = 0;
  unsigned count = 20000, found = 0;
  NEED(cuCtxGetCurrent(&context));
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  NEED(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc(&word, 8));
  NEED(cuMemsetD32(word, 0, 2));
  NEED(cuCtxSynchronize());
  void* parameters[] = {&word, &count};
  NEED(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, first, parameters, nullptr));
  SHOW(cuCtxRecordEvent(context, event));
  SHOW(cuCtxWaitEvent(context, event));
  NEED(cuMemcpyDtoDAsync(word + 4, word, 4, second));
  SHOW(cuEventSynchronize(event));
  NEED(cuStreamSynchronize(second));
  NEED(cuMemcpyDtoH(&found, word + 4, 4));
  VALUE(found);
}

void of_streams() {
  std::puts("streams");
  CUstream first = nullptr, second = nullptr;
  NEED(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  SHOW(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  SHOW(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
  SHOW(cuStreamCopyAttributes(second, first));
  value = {};
  SHOW(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  VALUE(value.syncPolicy);
  value = {};
  SHOW(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
  VALUE(value.memSyncDomain);
  CUdeviceptr word = 0;
  NEED(cuMemAlloc(&word, 8));
  NEED(cuMemsetD32(word, 1, 2));
  NEED(cuCtxSynchronize());
  SHOW(cuStreamWaitValue64(first, word, 0x100000001, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuStreamSynchronize(first));
}

void of_functions(CUmodule module, const char* file) {
  std::puts("functions and kernels");
  CUfunction add = nullptr;
  CUfunctionLoadingState state{};
  CUmoduleLoadingMode mode{};
  SHOW(cuModuleGetLoadingMode(&mode));
  NEED(cuModuleGetFunction(&add, module, "add"));
  SHOW(cuFuncLoad(add));
  SHOW(cuFuncIsLoaded(&state, add));
  VALUE(state);
  SHOW(call("cuFuncSetSharedMemConfig", add, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  unsigned count = 0;
  CUfunction functions[16]{};
  NEED(cuModuleGetFunctionCount(&count, module));
  SHOW(cuModuleEnumerateFunctions(functions, count, module));
  unsigned there = 0;
  for (CUfunction each : functions) there += each != nullptr ? 1 : 0;
  VALUE(there == count);
  CUmodule again = nullptr;
  SHOW(cuModuleLoadFatBinary(&again, kKernels));
  SHOW(cuModuleGetFunction(&add, again, "add"));

  CUlibrary library = nullptr, of = nullptr;
  CUkernel kernels[16]{}, kernel = nullptr;
  SHOW(cuLibraryLoadFromFile(&library, file, nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryGetKernelCount(&count, library));
  VALUE(count);
  SHOW(cuLibraryEnumerateKernels(kernels, count, library));
  there = 0;
  for (CUkernel each : kernels) there += each != nullptr ? 1 : 0;
  VALUE(there == count);
  SHOW(cuLibraryGetKernel(&kernel, library, "add"));
  SHOW(cuKernelGetLibrary(&of, kernel));
  VALUE(of == library);
  size_t offset = 0, bytes = 0;
  SHOW(cuKernelGetParamInfo(kernel, 3, &offset, &bytes));
  VALUE(offset);
  VALUE(bytes);
  int carveout = 0;
  SHOW(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, kernel, 0));
  SHOW(cuKernelGetAttribute(&carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kernel,
                            0));
  VALUE(carveout);
  SHOW(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_SHARED, 0));
  SHOW(cuLibraryUnload(library));
}

void of_pools() {
  std::puts("pools of places");
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr, other = nullptr, usual = nullptr;
  SHOW(cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  NEED(cuDeviceGetDefaultMemPool(&usual, 0));
  VALUE(pool == usual);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = here;
  NEED(cuMemPoolCreate(&other, &properties));
  SHOW(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, other));
  SHOW(cuMemGetMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  VALUE(pool == other);
  SHOW(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, usual));
  SHOW(cuMemPoolDestroy(other));
}

void of_the_primary_context() {
  std::puts("the primary context");
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  VALUE(flags);
  VALUE(active);
  CUcontext primary = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&primary, 0));
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  VALUE(active);
  SHOW(cuDevicePrimaryCtxRelease(0));
}

void of_the_device() {
  std::puts("the device");
  CUdevprop properties{};
  SHOW(cuDeviceGetProperties(&properties, 0));
  VALUE(properties.maxThreadsPerBlock);
  VALUE(properties.maxThreadsDim[2]);
  VALUE(properties.maxGridSize[1]);
  VALUE(properties.sharedMemPerBlock);
  VALUE(properties.SIMDWidth);
  int supported = 7;
  SHOW(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  char luid[8];
  unsigned mask = 0;
  SHOW(cuDeviceGetLuid(luid, &mask, 0));
  unsigned total = 0;
  SHOW(call("cuDeviceTotalMem", &total, CUdevice{0}));
  VALUE(total != 0);
  SHOW(call("cuProfilerInitialize", "/dev/null", "/dev/null", 1));
  SHOW(call("cuProfilerStart"));
  SHOW(call("cuProfilerStop"));
}

void of_occupancy(CUmodule module) {
  std::puts("occupancy");
  CUfunction add = nullptr;
  NEED(cuModuleGetFunction(&add, module, "add"));
  int blocks = 0, grid = 0, block = 0;
  SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, add, 128, 0,
                                                            CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE));
  VALUE(blocks);
  SHOW(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, add, nullptr, 0, 256,
                                                 CU_OCCUPANCY_DEFAULT));
  VALUE(block);
  CUlaunchConfig config{};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0, size = 0;
  SHOW(cuOccupancyMaxActiveClusters(&clusters, add, &config));
  VALUE(clusters > 0);
  SHOW(cuOccupancyMaxPotentialClusterSize(&size, add, &config));
  VALUE(size);
}

// A file with the kernels.
std::string write_kernels() {
  std::string name = "/tmp/fargpu-settings-" + std::to_string(getpid()) + ".ptx";
  if (FILE* file = std::fopen(name.c_str(), "w")) {
    std::fputs(kKernels, file);
    std::fclose(file);
  }
  return name;
}

}  // namespace

int main() {
  NEED(cuInit(0));
  of_the_primary_context();
  make_context();
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&spin, module, "spin"));
  of_contexts();
  events_of_contexts(spin);
  of_streams();
  const std::string file = write_kernels();
  of_functions(module, file.c_str());
  unlink(file.c_str());
  of_pools();
  of_the_device();
  of_occupancy(module);
  return 0;
}
