// counted_launches COUNT: COUNT launches of a graph without host nodes and host memory, one behind
// the other in a stream. The test counts what that costs in calls, frames and bytes.
#include <cuda.h>

#include <cstdlib>

#include "driver_check.h"

namespace {

constexpr const char* kPtx = R"(.version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 counter) {
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter];
  cvta.to.global.u64 %rd1, %rd1;
  ld.global.u32 %r1, [%rd1];
  add.s32 %r1, %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

// Two kernels, a fill and a copy, one behind the other.
int build(CUgraph graph, CUcontext context, CUfunction function, CUdeviceptr memory) {
  CUdeviceptr counter = memory;
  void* pointers[] = {&counter};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = pointers;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory + 64;
  fill.elementSize = 4;
  fill.width = fill.height = 1;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstDevice = memory + 128;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode nodes[4] = {};
  CHECK(cuGraphAddKernelNode(&nodes[0], graph, nullptr, 0, &kernel));
  CHECK(cuGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &kernel));
  CHECK(cuGraphAddMemsetNode(&nodes[2], graph, &nodes[1], 1, &fill, context));
  CHECK(cuGraphAddMemcpyNode(&nodes[3], graph, &nodes[2], 1, &copy, context));
  return 0;
}

}  // namespace

int main(int argc, char** values) {
  if (argc != 2) return 2;
  const int count = std::atoi(values[1]);
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUstream stream = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&memory, 4096));
  CHECK(cuMemsetD8(memory, 0, 4096));
  CHECK(cuModuleLoadData(&module, kPtx));
  CHECK(cuModuleGetFunction(&function, module, "add_one"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuGraphCreate(&graph, 0));
  if (build(graph, context, function, memory) != 0) return 1;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuCtxSynchronize());
  for (int i = 0; i < count; ++i) CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  unsigned counted = 0;
  CHECK(cuMemcpyDtoH(&counted, memory + 128, sizeof counted));
  if (counted != 2 * static_cast<unsigned>(count)) {
    std::fprintf(stderr, "%u instead of %d\n", counted, 2 * count);
    return 1;
  }
  return 0;
}
