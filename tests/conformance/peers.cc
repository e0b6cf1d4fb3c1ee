// Two devices that reach each other: access given and taken back, copies between them.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

void fill_there(CUcontext here, CUdeviceptr there, unsigned value) {
  NEED(cuCtxSetCurrent(here));
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  unsigned count = 4;
  void* parameters[] = {&there, &value, &count};
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  SHOW(cuLaunchKernel(fill, 1, 1, 1, 4, 1, 1, 0, nullptr, parameters, nullptr));
  SHOW(cuCtxSynchronize());
}

void show_words(CUcontext of, CUdeviceptr words) {
  uint32_t out[4]{};
  NEED(cuCtxSetCurrent(of));
  NEED(cuMemcpyDtoH(out, words, sizeof out));
  std::printf("  %x %x %x %x\n", out[0], out[1], out[2], out[3]);
}

CUDA_MEMCPY3D_PEER box(CUcontext from_context, CUdeviceptr from, CUcontext to_context,
                       CUdeviceptr to) {
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcContext = from_context;
  copy.srcDevice = from;
  copy.dstContext = to_context;
  copy.dstDevice = to;
  copy.WidthInBytes = 8;
  copy.Height = copy.Depth = 1;
  return copy;
}

}  // namespace

int main() {
  const CUcontext first = make_context(0);
  int devices = 0, can = 0;
  NEED(cuDeviceGetCount(&devices));
  SHOW(cuDeviceCanAccessPeer(&can, 0, 0));
  VALUE(can);
  SHOW(cuCtxEnablePeerAccess(first, 0));
  SHOW(cuCtxDisablePeerAccess(first));
  if (devices < 2) return 0;
  SHOW(cuDeviceCanAccessPeer(&can, 0, 1));
  VALUE(can);
  if (can == 0) return 0;
  int value = 7;
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  VALUE(value);
  SHOW(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));

  CUdeviceptr a = 0, b = 0;
  NEED(cuMemAlloc(&a, 16));
  NEED(cuMemsetD32(a, 1, 4));
  NEED(cuCtxSynchronize());  // the copy is of another context
  const CUcontext second = make_context(1);
  NEED(cuMemAlloc(&b, 16));
  NEED(cuMemsetD32(b, 2, 4));
  SHOW(cuMemcpyPeer(b, second, a, first, 8));
  show_words(second, b);
  NEED(cuCtxSetCurrent(first));
  SHOW(cuCtxDisablePeerAccess(second));
  SHOW(cuCtxEnablePeerAccess(second, 1));
  SHOW(cuCtxEnablePeerAccess(second, 0));
  SHOW(cuCtxEnablePeerAccess(second, 0));
  fill_there(first, b, 3);
  show_words(second, b);
  NEED(cuCtxSetCurrent(first));
  SHOW(cuCtxDisablePeerAccess(second));
  SHOW(cuCtxDisablePeerAccess(second));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUDA_MEMCPY3D_PEER copy = box(second, b, first, a);
  SHOW(cuMemcpy3DPeerAsync(&copy, stream));
  SHOW(cuStreamSynchronize(stream));
  show_words(first, a);
  return 0;
}
