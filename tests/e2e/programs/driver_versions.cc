// What a driver and its device say of themselves, which functions are found, and a kernel. The same
// on a driver directly and through fargpu.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

// Without parameters: how they lie is asked by functions that came with CUDA 12.4.
constexpr char kKernel[] = R"ptx(
.version 6.3
.target sm_75
.address_size 64
.visible .global .align 4 .u32 result;
.visible .entry store()
{
  .reg .b32 %r<2>;
  mov.u32 %r1, 42;
  st.global.u32 [result], %r1;
  ret;
}
)ptx";

void need(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}
#define NEED(call) need(call, #call)

using Find = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

void ask(Find find, const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = find(name, &function, version, 0, &status);
  std::printf("%s of %d: error %d, %s, status %d\n", name, version, static_cast<int>(result),
              function == nullptr ? "absent" : "there", static_cast<int>(status));
}

}  // namespace

int main() {
  NEED(cuInit(0));
  int version = 0;
  NEED(cuDriverGetVersion(&version));
  std::printf("version %d\n", version);
  for (const char* name : {"cuMemAlloc", "cuGraphAddNode", "cuGreenCtxCreate", "cuStreamGetCtx",
                           "cuGreenCtxGetId", "cuLogsCurrent", "cuMemcpyBatchAsync",
                           "cuDeviceGetHostAtomicCapabilities", "cuNoSuchFunction"}) {
    ask(&cuGetProcAddress_v2, name, version);
    ask(&cuGetProcAddress_v2, name, 12000);
  }
  ask(&cuGetProcAddress_v2, "cuMemAlloc", version + 10);

  CUdevice device = 0;
  NEED(cuDeviceGet(&device, 0));
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR}) {
    int value = 0;
    NEED(cuDeviceGetAttribute(&value, attribute, device));
    std::printf("attribute %d is %d\n", static_cast<int>(attribute), value);
  }
  CUcontext context = nullptr;
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  NEED(cuModuleLoadData(&module, kKernel));
  NEED(cuModuleGetFunction(&kernel, module, "store"));
  CUdeviceptr memory = 0;
  size_t bytes = 0;
  NEED(cuModuleGetGlobal(&memory, &bytes, module, "result"));
  unsigned found = 0;
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  NEED(cuStreamSynchronize(stream));
  NEED(cuMemcpyDtoH(&found, memory, sizeof found));
  std::printf("the kernel wrote %u\n", found);

  // A function that the driver may lack: what is found can be called.
  void* get_resource = nullptr;
  NEED(cuGetProcAddress_v2("cuDeviceGetDevResource", &get_resource, version, 0, nullptr));
  std::printf("device resources: %s\n", get_resource == nullptr ? "absent" : "there");
  if (get_resource != nullptr) {
    using Get = CUresult (*)(CUdevice, CUdevResource*, CUdevResourceType);
    CUdevResource resource{};
    NEED(reinterpret_cast<Get>(get_resource)(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
    std::printf("at least %u, by %u\n", resource.sm.minSmPartitionSize,
                resource.sm.smCoscheduledAlignment);
  }
  return 0;
}
