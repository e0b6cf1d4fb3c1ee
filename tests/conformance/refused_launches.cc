// Launches that a driver refuses in the call: by a block or a cluster that the kernel requires, and
// by the contexts of function and stream. Nothing comes later, and nothing has run.
#include <span>

#include "tests/conformance/conformance.h"

namespace {

constexpr const char* kText = R"ptx(
.version 8.0
.target sm_90
.address_size 64
.visible .entry any(.param .u64 out)
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 1; ret; }
.visible .entry block_64(.param .u64 out) .reqntid 64, 1, 1
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 2; ret; }
.visible .entry block_8x4(.param .u64 out) .reqntid 8, 4
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 3; ret; }
.visible .entry most_64(.param .u64 out) .maxntid 64, 1, 1
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 4; ret; }
.visible .entry pairs(.param .u64 out) .reqnctapercluster 2, 1, 1
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 5; ret; }
.visible .entry clusters(.param .u64 out) .explicitcluster
{ .reg .u64 a; ld.param.u64 a, [out]; st.global.u32 [a], 6; ret; }
)ptx";

struct Shape {
  unsigned grid_x = 1, grid_y = 1, block_x = 1, block_y = 1;
};

CUdeviceptr out;

void show_end() {
  SHOW(cuCtxSynchronize());
  unsigned written = 0;
  SHOW(cuMemcpyDtoH(&written, out, sizeof written));
  VALUE(written);
}

void launch(const char* name, CUfunction function, const Shape& shape, CUstream stream = nullptr) {
  std::printf("%s: grid %u %u, block %u %u\n", name, shape.grid_x, shape.grid_y, shape.block_x,
              shape.block_y);
  NEED(cuMemsetD32(out, 0, 1));
  NEED(cuCtxSynchronize());
  void* arguments[] = {&out};
  SHOW(cuLaunchKernel(function, shape.grid_x, shape.grid_y, 1, shape.block_x, shape.block_y, 1, 0,
                      stream, arguments, nullptr));
  show_end();
}

void launch_with(const char* name, CUfunction function, unsigned blocks,
                 std::span<CUlaunchAttribute> attributes) {
  std::printf("%s: %u blocks, %zu attributes\n", name, blocks, attributes.size());
  NEED(cuMemsetD32(out, 0, 1));
  NEED(cuCtxSynchronize());
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  void* arguments[] = {&out};
  SHOW(cuLaunchKernelEx(&config, function, arguments, nullptr));
  show_end();
}

void add_node(const char* name, CUfunction function, const Shape& shape) {
  std::printf("node of %s: grid %u %u, block %u %u\n", name, shape.grid_x, shape.grid_y,
              shape.block_x, shape.block_y);
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = shape.grid_x;
  params.gridDimY = shape.grid_y;
  params.blockDimX = shape.block_x;
  params.blockDimY = shape.block_y;
  params.gridDimZ = params.blockDimZ = 1;
  void* arguments[] = {&out};
  params.kernelParams = arguments;
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  size_t nodes = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &nodes));
  VALUE(nodes);
  NEED(cuGraphDestroy(graph));
}

CUfunction function_of(CUmodule module, const char* name) {
  CUfunction function;
  NEED(cuModuleGetFunction(&function, module, name));
  return function;
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kText));
  NEED(cuMemAlloc(&out, sizeof(unsigned)));
  const CUfunction any = function_of(module, "any"), pairs = function_of(module, "pairs"),
                   clusters = function_of(module, "clusters"),
                   block_64 = function_of(module, "block_64");
  launch("block_64", block_64, {.block_x = 64});
  launch("block_64", block_64, {.block_x = 32});
  launch("block_64", block_64, {.block_x = 32, .block_y = 2});
  launch("block_8x4", function_of(module, "block_8x4"), {.block_x = 8, .block_y = 4});
  launch("block_8x4", function_of(module, "block_8x4"), {.block_x = 32});
  launch("most_64", function_of(module, "most_64"), {.block_x = 65});
  launch("most_64", function_of(module, "most_64"), {.block_x = 32, .block_y = 2});
  launch("pairs", pairs, {.grid_x = 3});
  launch("pairs", pairs, {.grid_x = 4, .grid_y = 3});
  launch("clusters", clusters, {.grid_x = 2});

  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {2, 1, 1};
  for (const unsigned blocks : {4u, 3u}) {
    launch_with("pairs", pairs, blocks, std::span(attributes).first(1));
    launch_with("pairs", pairs, blocks, attributes);
    launch_with("clusters", clusters, blocks, std::span(attributes).first(1));
    launch_with("clusters", clusters, blocks, attributes);
  }

  add_node("pairs", pairs, {.grid_x = 3});
  add_node("pairs", pairs, {.grid_x = 4});
  add_node("block_64", block_64, {.block_x = 32});
  add_node("block_64", block_64, {.block_x = 64});

  CUcontext first, second;
  CUstream stream;
  CUmodule other;
  NEED(cuCtxGetCurrent(&first));
  NEED(cuCtxCreate(&second, nullptr, 0, 0));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuModuleLoadData(&other, kText));
  const CUfunction any_of_other = function_of(other, "any");
  NEED(cuCtxSetCurrent(first));
  launch("any in a stream of another context", any, {}, stream);
  launch("any of another context", any_of_other, {});
  std::printf("function and stream of another context\n");
  void* arguments[] = {&out};
  SHOW(cuLaunchKernel(any_of_other, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuCtxDestroy(second));
}
