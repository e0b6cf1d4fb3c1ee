// counted_launches COUNT [change]: COUNT launches of a graph without host nodes and host memory,
// one behind the other in a stream; with `change` the first kernel gets another parameter before
// each.
// The test counts what that costs in calls, frames and bytes.
// counted_launches 1 refused: the driver refuses such a change, which nobody has waited for.
#include <cuda.h>

#include <cstdlib>
#include <cstring>

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

CUDA_KERNEL_NODE_PARAMS one_thread(CUfunction function, void** pointers) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = pointers;
  return kernel;
}

// Two kernels, a fill and a copy, one behind the other.
int build(CUgraph graph, CUcontext context, CUfunction function, CUdeviceptr memory,
          CUgraphNode* first) {
  CUdeviceptr counter = memory;
  void* pointers[] = {&counter};
  const CUDA_KERNEL_NODE_PARAMS kernel = one_thread(function, pointers);
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
  *first = nodes[0];
  return 0;
}

// The change or the launch behind it fails, and the launch is not made; the next one is as if there
// had been no change.
int check_refusal(CUgraphExec exec, CUgraphNode first, CUfunction function, CUdeviceptr memory,
                  CUstream stream) {
  CUdeviceptr own = memory + 256;
  void* pointers[] = {&own};
  const CUDA_KERNEL_NODE_PARAMS kernel = one_thread(function, pointers);
  CUresult result = cuGraphExecKernelNodeSetParams(exec, first, &kernel);
  if (result == CUDA_SUCCESS) result = cuGraphLaunch(exec, stream);
  if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream);
  if (result != CUDA_ERROR_NOT_PERMITTED) {
    std::fprintf(stderr, "%d instead of CUDA_ERROR_NOT_PERMITTED\n", static_cast<int>(result));
    return 1;
  }
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  unsigned values[2] = {};
  CHECK(cuMemcpyDtoH(&values[0], memory + 128, sizeof values[0]));
  CHECK(cuMemcpyDtoH(&values[1], own, sizeof values[1]));
  if (values[0] == 2 && values[1] == 0) return 0;
  std::fprintf(stderr, "%u and %u instead of 2 and 0\n", values[0], values[1]);
  return 1;
}

}  // namespace

int main(int argc, char** values) {
  if (argc != 2 && argc != 3) return 2;
  const int count = std::atoi(values[1]);
  const bool change = argc == 3;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr;
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
  if (build(graph, context, function, memory, &first) != 0) return 1;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuCtxSynchronize());
  if (change && std::strcmp(values[2], "refused") == 0)
    return check_refusal(exec, first, function, memory, stream);
  for (int i = 0; i < count; ++i) {
    if (change) {
      CUdeviceptr own = memory + 256 + 4 * static_cast<unsigned>(i);
      void* pointers[] = {&own};
      const CUDA_KERNEL_NODE_PARAMS kernel = one_thread(function, pointers);
      CHECK(cuGraphExecKernelNodeSetParams(exec, first, &kernel));
    }
    CHECK(cuGraphLaunch(exec, stream));
  }
  CHECK(cuStreamSynchronize(stream));
  // By the second kernel, then by the first one.
  unsigned counted = 0, own = 0;
  CHECK(cuMemcpyDtoH(&counted, memory + 128, sizeof counted));
  if (change) {
    for (int i = 0; i < count; ++i) {
      unsigned one = 0;
      CHECK(cuMemcpyDtoH(&one, memory + 256 + 4 * static_cast<unsigned>(i), sizeof one));
      own += one == 1 ? 1 : 0;
    }
  } else {
    own = counted / 2;
    counted -= own;
  }
  if (counted != static_cast<unsigned>(count) || own != static_cast<unsigned>(count)) {
    std::fprintf(stderr, "%u and %u instead of %d\n", counted, own, count);
    return 1;
  }
  return 0;
}
