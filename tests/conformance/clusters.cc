// Clusters of blocks and tensor maps: launches with the attribute and of kernels that require a
// cluster, shared memory of another block, a tile copied by a map.
#include "tests/conformance/conformance.h"

namespace {

//   pair(out)              blocks of a pair give each other 100 + their rank, by shared memory
//   shape(out)             out[block] = blocks of the cluster * 1000 + rank
//   tile(map, x, y, out)   copies 16 x 4 numbers of a tensor into shared memory, then to out
constexpr const char* kText = R"ptx(
.version 8.0
.target sm_90
.address_size 64

.visible .entry pair(.param .u64 out) .reqnctapercluster 2, 1, 1
{
  .shared .align 4 .b32 gift;
  .reg .b32 %r<10>; .reg .b64 %rd<4>;
  mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; add.u32 %r3, %r1, 100;
  mov.u32 %r4, gift; mapa.shared::cluster.u32 %r5, %r4, %r2;
  barrier.cluster.arrive; barrier.cluster.wait;
  st.shared::cluster.u32 [%r5], %r3;
  barrier.cluster.arrive; barrier.cluster.wait;
  ld.shared.u32 %r6, [gift];
  ld.param.u64 %rd1, [out]; mov.u32 %r7, %ctaid.x; mul.wide.u32 %rd2, %r7, 4;
  add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6;
  ret;
}

.visible .entry shape(.param .u64 out)
{
  .reg .b32 %r<10>; .reg .b64 %rd<4>;
  mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %cluster_ctarank;
  mad.lo.u32 %r3, %r1, 1000, %r2;
  ld.param.u64 %rd1, [out]; mov.u32 %r7, %ctaid.x; mul.wide.u32 %rd2, %r7, 4;
  add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3;
  ret;
}

.visible .entry tile(.param .align 64 .b8 map[128], .param .u32 x, .param .u32 y, .param .u64 out)
{
  .shared .align 128 .b8 numbers[256]; .shared .align 8 .b64 arrived;
  .reg .pred %p; .reg .b32 %r<10>; .reg .b64 %rd<8>;
  mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0;
  mov.u32 %r2, numbers; mov.u32 %r3, arrived;
  @%p bra WAIT;
  mbarrier.init.shared.b64 [%r3], 1;
  mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r3], 256;
  mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2;
  ld.param.u32 %r4, [x]; ld.param.u32 %r5, [y];
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r2], [%rd2, {%r4, %r5}], [%r3];
WAIT:
  bar.sync 0;
AGAIN:
  mbarrier.try_wait.parity.shared.b64 %p, [%r3], 0;
  @!%p bra AGAIN;
  mul.lo.u32 %r6, %r1, 4; add.u32 %r7, %r2, %r6; ld.shared.u32 %r8, [%r7];
  ld.param.u64 %rd3, [out]; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4;
  st.global.u32 [%rd3], %r8;
  ret;
}
)ptx";

CUdeviceptr out;

void show_numbers(int count) {
  std::vector<unsigned> numbers(static_cast<size_t>(count));
  SHOW(cuMemcpyDtoH(numbers.data(), out, numbers.size() * 4));
  for (const unsigned number : numbers) std::printf(" %u", number);
  std::printf("\n");
}

void launch(CUfunction function, unsigned blocks, unsigned x, unsigned y, unsigned z) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {x, y, z};
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = x == 0 ? 0 : 1;
  void* arguments[] = {&out};
  NEED(cuMemsetD32(out, 7, 64));
  std::printf("%u blocks in clusters of %u, %u, %u\n", blocks, x, y, z);
  SHOW(cuLaunchKernelEx(&config, function, arguments, nullptr));
  show_numbers(8);
}

CUlaunchAttributeValue cluster_of(unsigned x) {
  CUlaunchAttributeValue value{};
  value.clusterDim = {x, 1, 1};
  return value;
}

void run(CUgraphExec exec) {
  NEED(cuMemsetD32(out, 7, 64));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_numbers(8);
}

// A captured launch with a cluster, another one by the node's attribute, and an update.
void show_nodes(CUfunction shape, CUfunction pair) {
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value = cluster_of(4);
  CUlaunchConfig config{8, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
  void* arguments[] = {&out};
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuLaunchKernelEx(&config, shape, arguments, nullptr));
  CUgraph graph;
  SHOW(cuStreamEndCapture(stream, &graph));
  CUgraphNode node;
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, &node, &count));
  CUlaunchAttributeValue value{};
  SHOW(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  VALUE(value.clusterDim.x);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  value = cluster_of(2);
  SHOW(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  run(exec);
  CUgraphExecUpdateResultInfo updated{};
  SHOW(cuGraphExecUpdate(exec, graph, &updated));
  VALUE(updated.result);
  run(exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));

  NEED(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = pair;
  params.gridDimX = 8;
  params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  value = cluster_of(2);
  SHOW(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  NEED(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  NEED(cuStreamDestroy(stream));
}

CUresult encode(CUtensorMap* map, CUdeviceptr tensor, cuuint64_t columns, cuuint64_t stride) {
  const cuuint64_t size[] = {columns, 10}, strides[] = {stride};
  const cuuint32_t box[] = {16, 4}, step[] = {1, 1};
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2,
                                reinterpret_cast<void*>(tensor), size, strides, box, step,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

void show_tile(CUfunction tile, CUtensorMap& map, int x, int y) {
  void* arguments[] = {&map, &x, &y, &out};
  SHOW(cuLaunchKernel(tile, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  show_numbers(64);
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  CUfunction pair, shape, tile;
  SHOW(cuModuleLoadData(&module, kText));
  NEED(cuModuleGetFunction(&pair, module, "pair"));
  NEED(cuModuleGetFunction(&shape, module, "shape"));
  NEED(cuModuleGetFunction(&tile, module, "tile"));
  NEED(cuMemAlloc(&out, 1024));
  int value = -1;
  for (const auto attribute :
       {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED}) {
    SHOW(cuDeviceGetAttribute(&value, attribute, 0));
    VALUE(value);
  }
  for (const auto attribute :
       {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    SHOW(cuFuncGetAttribute(&value, attribute, pair));
    VALUE(value);
    SHOW(cuFuncGetAttribute(&value, attribute, shape));
    VALUE(value);
  }
  launch(pair, 8, 0, 0, 0);
  launch(pair, 8, 2, 1, 1);
  launch(pair, 8, 4, 1, 1);
  launch(shape, 8, 0, 0, 0);
  launch(shape, 8, 1, 1, 1);
  launch(shape, 8, 4, 1, 1);
  launch(shape, 8, 3, 1, 1);

  show_nodes(shape, pair);

  CUdeviceptr tensor;
  NEED(cuMemAlloc(&tensor, 20 * 12 * 4));
  std::vector<unsigned> numbers(20 * 12);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<unsigned>(i);
  NEED(cuMemcpyHtoD(tensor, numbers.data(), numbers.size() * 4));
  CUtensorMap map{};
  SHOW(encode(&map, tensor, 18, 80));
  show_tile(tile, map, 1, 2);
  show_tile(tile, map, -2, -1);
  show_tile(tile, map, 10, 8);
  SHOW(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(tensor + 80)));
  show_tile(tile, map, 0, 0);
  SHOW(encode(&map, tensor + 4, 18, 80));
  SHOW(encode(&map, tensor, 18, 72));
  SHOW(encode(&map, tensor, 0, 80));
  SHOW(cuCtxSynchronize());
  return 0;
}
