// What conformance programs about graphs share: three pieces of memory, a stream, kernels, and
// parameters of nodes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

inline constexpr unsigned kWords = 64;

struct World {
  World();
  CUcontext context;
  CUstream stream;  // does not wait for the default stream
  CUfunction add, fill;
  CUdeviceptr a, b, c;  // of kWords words
};

inline World::World() : context(make_context()) {
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&add, module, "add"));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (CUdeviceptr* p : {&a, &b, &c}) {
    NEED(cuMemAlloc(p, kWords * 4));
    NEED(cuMemsetD32(*p, 0, kWords));
  }
  NEED(cuCtxSynchronize());
}

// The parts of a World by names of their own, for programs of many functions.
namespace in_world {

inline CUcontext context;
inline CUstream stream;
inline CUfunction add_kernel, fill_kernel;
inline CUdeviceptr a, b, c;

inline void set_up() {
  const World world;
  context = world.context;
  stream = world.stream;
  add_kernel = world.add;
  fill_kernel = world.fill;
  a = world.a;
  b = world.b;
  c = world.c;
}

// A conditional node of one body, whose handle has the value at each launch.
struct Condition {
  Condition(CUgraph graph, CUgraphConditionalNodeType type, unsigned value) {
    NEED(cuGraphConditionalHandleCreate(&handle, graph, context, value,
                                        CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {handle, type, 1, nullptr, context};
    NEED(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    body = params.conditional.phGraph_out[0];
  }
  CUgraphConditionalHandle handle;
  CUgraphNode node;
  CUgraph body;
};

}  // namespace in_world

inline void show_first(const char* text, CUdeviceptr p) {
  uint32_t value = 0;
  NEED(cuMemcpyDtoH(&value, p, sizeof(value)));
  std::printf("%s: %u\n", text, value);
}

// `value` into words of device memory.
inline CUDA_MEMSET_NODE_PARAMS memset_params(CUdeviceptr p, uint32_t value, size_t words) {
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = p;
  params.value = value;
  params.elementSize = 4;
  params.width = words;
  params.height = 1;
  return params;
}

// So many bytes of the first device.
inline CUDA_MEM_ALLOC_NODE_PARAMS memory_params(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = bytes;
  return params;
}

inline CUDA_MEMCPY3D row(size_t bytes) {
  CUDA_MEMCPY3D params{};
  params.WidthInBytes = bytes;
  params.Height = params.Depth = 1;
  return params;
}
inline CUDA_MEMCPY3D copy_params(void* to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D params = row(bytes);
  params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstMemoryType = CU_MEMORYTYPE_HOST;
  params.dstHost = to;
  return params;
}
inline CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D params = row(bytes);
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = from;
  params.dstDevice = to;
  return params;
}

// The parameters of a kernel in blocks of 32 threads, one for each of `n` words.
inline CUDA_KERNEL_NODE_PARAMS kernel_params(CUfunction function, void** parameters, uint32_t n) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = (n + 31) / 32;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 32;
  params.kernelParams = parameters;
  return params;
}

// Those of the kernels fill and add (kernels.h), where a node finds them.
struct FillParams {
  CUdeviceptr p;
  uint32_t value, n;
  void* pointers[3] = {&p, &value, &n};
  CUDA_KERNEL_NODE_PARAMS node(CUfunction function) { return kernel_params(function, pointers, n); }
};

struct AddParams {
  CUdeviceptr a, b, c;
  uint32_t n;
  void* pointers[4] = {&a, &b, &c, &n};
  CUDA_KERNEL_NODE_PARAMS node(CUfunction function) { return kernel_params(function, pointers, n); }
};

// count_down(left, turns, handle): the first thread takes 1 from *left, adds 1 to *turns and sets
// the conditional handle to *left.
inline const char* kCountDown = R"ptx(
.version 8.4
.target sm_75
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry count_down(.param .u64 left, .param .u64 turns, .param .u64 handle)
{
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra done;
  ld.param.u64 %rd1, [left];
  ld.param.u64 %rd2, [turns];
  ld.param.u64 %rd3, [handle];
  cvta.to.global.u64 %rd4, %rd1;
  cvta.to.global.u64 %rd5, %rd2;
  ld.global.u32 %r2, [%rd4];
  sub.s32 %r2, %r2, 1;
  st.global.u32 [%rd4], %r2;
  ld.global.u32 %r3, [%rd5];
  add.s32 %r3, %r3, 1;
  st.global.u32 [%rd5], %r3;
  {
    .param .b64 first;
    st.param.b64 [first], %rd3;
    .param .b32 second;
    st.param.b32 [second], %r2;
    call.uni cudaGraphSetConditional, (first, second);
  }
done:
  ret;
}
)ptx";
