// Handles that were never made or are gone, and null pointers, where the real driver may crash (it
// reads through them): fargpu must answer with an error. Not for a native run.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

template <typename Handle>
Handle made_up() {
  return reinterpret_cast<Handle>(0x7777000);
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  CUfunction fill;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 256));
  char host[64] = {};
  unsigned value = 1, n = 4;
  void* arguments[] = {&p, &value, &n};

  SHOW(cuMemcpyHtoDAsync(p, host, 16, made_up<CUstream>()));
  SHOW(cuMemsetD8Async(p, 1, 16, made_up<CUstream>()));
  SHOW(cuLaunchKernel(fill, 1, 1, 1, 4, 1, 1, 0, made_up<CUstream>(), arguments, nullptr));
  SHOW(cuLaunchKernel(made_up<CUfunction>(), 1, 1, 1, 4, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuStreamQuery(made_up<CUstream>()));
  SHOW(cuStreamDestroy(made_up<CUstream>()));
  SHOW(cuEventQuery(made_up<CUevent>()));
  SHOW(cuEventRecord(made_up<CUevent>(), nullptr));
  SHOW(cuModuleUnload(made_up<CUmodule>()));
  SHOW(cuModuleUnload(nullptr));

  CUstream stream;
  CUevent event;
  NEED(cuStreamCreate(&stream, 0));
  NEED(cuEventCreate(&event, 0));
  SHOW(cuStreamQuery(reinterpret_cast<CUstream>(event)));  // the wrong kind
  SHOW(cuEventQuery(reinterpret_cast<CUevent>(stream)));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuStreamQuery(stream));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuEventDestroy(event));
  SHOW(cuEventQuery(event));
  SHOW(cuEventDestroy(event));
  SHOW(cuModuleUnload(module));
  SHOW(cuModuleUnload(module));
  SHOW(cuModuleGetFunction(&fill, module, "fill"));

  CUlinkState link;
  NEED(cuLinkCreate(0, nullptr, nullptr, &link));
  SHOW(cuLinkDestroy(link));
  void* image;
  char text[] = "text";
  SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, sizeof text, "input", 0, nullptr, nullptr));
  SHOW(cuLinkComplete(link, &image, nullptr));
  SHOW(cuLinkDestroy(link));

  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = p;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 16;
  copy.Height = 2;
  SHOW(cuMemcpy2D(&copy));
  SHOW(cuMemcpy2D(nullptr));
  SHOW(cuMemcpy3D(nullptr));
  SHOW(cuMemFree(p));
  return 0;
}
