// Kernel nodes that kernels update: their handles, what they may not be, and updates.
#include <cstring>
#include <string_view>

#include "tests/conformance/device_graphs.h"
#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

constexpr auto kUpdatable = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
enum What : uint64_t { kParam, kEnable, kGrid };

CUgraphNode add(CUgraph graph, const char* name, Arguments arguments) {
  const auto params = node_params(name, arguments);
  CUgraphNode node;
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  return node;
}

CUresult set_updatable(CUgraphNode node, int value, CUgraphDeviceNode* handle = nullptr) {
  CUlaunchAttributeValue attribute{};
  attribute.deviceUpdatableKernelNode.deviceUpdatable = value;
  const CUresult result = cuGraphKernelNodeSetAttribute(node, kUpdatable, &attribute);
  if (handle != nullptr) *handle = attribute.deviceUpdatableKernelNode.devNode;
  return result;
}

CUgraphDeviceNode show_attribute(CUgraphNode node) {
  CUlaunchAttributeValue attribute{};
  SHOW(cuGraphKernelNodeGetAttribute(node, kUpdatable, &attribute));
  VALUE(attribute.deviceUpdatableKernelNode.deviceUpdatable);
  VALUE(attribute.deviceUpdatableKernelNode.devNode != nullptr);
  return attribute.deviceUpdatableKernelNode.devNode;
}

void show_notes(const char* text) {
  uint32_t log[64];
  NEED(cuMemcpyDtoH(log, notes, sizeof log));
  NEED(cuMemsetD32(notes, 0, 64));
  NEED(cuCtxSynchronize());  // the other stream does not wait for it
  std::printf("%s:", text);
  // Blocks of a kernel come in no order.
  uint32_t sum = 0;
  for (uint32_t i = 1; i <= log[0]; ++i) sum += log[i];
  std::printf(" %u values, sum %u\n", log[0], sum);
}
void run(const char* text, CUgraphExec exec) {
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_notes(text);
}

void attributes() {
  std::printf("-- the attribute\n");
  CUgraph graph, clone;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node = add(graph, "mark", {{notes, 1}}), other = add(graph, "mark", {{notes, 2}});
  show_attribute(node);
  SHOW(set_updatable(node, 2));
  SHOW(set_updatable(node, 0));
  CUgraphDeviceNode handle = nullptr, again = nullptr;
  SHOW(set_updatable(node, 1, &handle));
  VALUE(handle != nullptr);
  VALUE(show_attribute(node) == handle);
  VALUE(set_updatable(node, 0) != CUDA_SUCCESS);
  SHOW(set_updatable(other, 1, &again));
  VALUE(again != handle);
  CUgraphNode third = add(graph, "mark", {{notes, 3}});
  VALUE(cuGraphKernelNodeCopyAttributes(third, node) != CUDA_SUCCESS);
  VALUE(cuGraphKernelNodeCopyAttributes(node, third) != CUDA_SUCCESS);
  SHOW(cuGraphDestroyNode(third));
  VALUE(cuGraphDestroyNode(node) != CUDA_SUCCESS);
  VALUE(cuGraphClone(&clone, graph) != CUDA_SUCCESS);
  CUgraphExec exec, second;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  VALUE(cuGraphInstantiate(&second, graph, 0) != CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  VALUE(cuGraphExecUpdate(exec, graph, &info) != CUDA_SUCCESS);
  run("both", exec);
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
  run("once more", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

// A driver accepts the child, and launches of the graph itself fail from then on.
void embedded() {
  std::printf("-- embedded\n");
  CUgraph graph, parent;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&parent, 0));
  NEED(set_updatable(add(graph, "mark", {{notes, 1}}), 1));
  SHOW(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, graph));
  NEED(cuGraphDestroy(parent));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run("itself", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

CUresult set_clusters(CUgraphNode node, unsigned blocks) {
  CUlaunchAttributeValue attribute{};
  attribute.clusterDim = {blocks, 1, 1};
  return cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &attribute);
}
CUgraphNode add_blocks(CUgraph graph, unsigned blocks) {
  Arguments arguments{{notes, 1}};
  auto params = node_params("mark", arguments);
  params.gridDimX = blocks;
  CUgraphNode node;
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  return node;
}

// GPUs differ in when they refuse clusters that are too large, or any; the blocks run once.
// `beside`: of another node that kernels update.
void refused(bool beside) {
  std::printf("-- refused, and right later\n");
  CUgraph graph, clone;
  NEED(cuGraphCreate(&graph, 0));
  if (beside) NEED(set_updatable(add_blocks(graph, 1), 1));
  CUgraphNode node = add_blocks(graph, 32);
  (void)set_clusters(node, 32);
  const bool is_refused = set_updatable(node, 1) != CUDA_SUCCESS;
  (void)set_clusters(node, 1);
  if (is_refused && !beside) {
    NEED(cuGraphClone(&clone, graph));  // it is as it was
    NEED(cuGraphDestroy(clone));
  }
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run("once", exec);
  NEED(cuGraphExecDestroy(exec));
  if (is_refused && !beside) NEED(set_updatable(node, 1));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run("once more", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

// The grid and its clusters change after the node was made updatable.
void other_clusters() {
  std::printf("-- other clusters\n");
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node = add_blocks(graph, 4);
  (void)set_clusters(node, 4);
  NEED(set_updatable(node, 1));
  (void)set_clusters(node, 1);
  Arguments arguments{{notes, 1}};
  auto params = node_params("mark", arguments);
  params.gridDimX = 3;
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  (void)set_clusters(node, 3);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run("three blocks", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

// A graph in which `update` changes the node behind it.
struct Pair {
  Pair(const char* name, uint64_t offset, uint64_t value, uint64_t what, uint64_t mark = 10) {
    NEED(cuGraphCreate(&graph, 0));
    node = add(graph, "mark", {{notes, 0}});
    NEED(set_updatable(node, 1, &handle));
    // Its parameters after that, and what it depends on.
    Arguments arguments{{notes, mark}};
    const auto params = node_params("mark", arguments);
    NEED(cuGraphKernelNodeSetParams(node, &params));
    CUgraphNode update =
        add(graph, name, {{notes, reinterpret_cast<uint64_t>(handle), offset, value, what}});
    NEED(cuGraphAddDependencies(graph, &update, &node, nullptr, 1));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphUpload(exec, stream));
    NEED(cuStreamSynchronize(stream));
  }
  ~Pair() {
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }
  CUgraph graph;
  CUgraphNode node;
  CUgraphDeviceNode handle;
  CUgraphExec exec;
};

void updates() {
  std::printf("-- updates by kernels\n");
  run("a parameter", Pair("update", 8, 500, kParam).exec);
  run("disabled", Pair("update", 0, 0, kEnable).exec);
  run("enabled", Pair("update", 0, 1, kEnable).exec);
  run("three blocks", Pair("update", 0, 3, kGrid).exec);
  run("all at once", Pair("update_all", 8, 600, 0).exec);
  run("behind the parameters", Pair("update", 4096, 1, kParam).exec);
  run("no block", Pair("update", 0, 0, kGrid).exec);
}

// By a kernel of another graph; the host disables what the kernel enables.
void from_elsewhere() {
  std::printf("-- from another graph\n");
  CUgraph graph, other;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&other, 0));
  CUgraphNode node = add(graph, "mark", {{notes, 10}});
  CUgraphDeviceNode handle = nullptr;
  NEED(set_updatable(node, 1, &handle));
  add(other, "update", {{notes, reinterpret_cast<uint64_t>(handle), 8, 700, kParam}});
  CUgraphExec exec, updating;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  NEED(cuGraphInstantiate(&updating, other, 0));
  NEED(cuGraphUpload(exec, stream));
  run("before", exec);
  run("updating", updating);
  run("after", exec);
  // Parameters by the host replace what the kernel has set.
  Arguments arguments{{notes, 20}};
  const auto params = node_params("mark", arguments);
  SHOW(cuGraphExecKernelNodeSetParams(exec, node, &params));
  SHOW(cuGraphUpload(exec, stream));
  run("set by the host", exec);
  SHOW(cuGraphNodeSetEnabled(exec, node, 0));
  SHOW(cuGraphUpload(exec, stream));
  run("disabled by the host", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphExecDestroy(updating));
  NEED(cuGraphDestroy(graph));
  NEED(cuGraphDestroy(other));
}

void captured() {
  std::printf("-- captured\n");
  CUlaunchAttribute attribute;
  std::memset(&attribute, 0, sizeof attribute);
  attribute.id = kUpdatable;
  attribute.value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  Arguments arguments{{notes, 4}};
  const CUfunction mark = kernel("mark");
  VALUE(cuLaunchKernelEx(&config, mark, arguments.pointers, nullptr) != CUDA_SUCCESS);
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuLaunchKernelEx(&config, mark, arguments.pointers, nullptr));
  VALUE(attribute.value.deviceUpdatableKernelNode.devNode != nullptr);
  CUgraph graph;
  SHOW(cuStreamEndCapture(stream, &graph));
  CUgraphNode node;
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, &node, &count));
  VALUE(show_attribute(node) == attribute.value.deviceUpdatableKernelNode.devNode);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  run("it", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

}  // namespace

// `embedded`: what a driver answers otherwise.
int main(int argc, char** argv) {
  set_up();
  NEED(cuModuleLoadData(&module, kGraphKernels));
  NEED(cuMemAlloc(&notes, 64 * 4));
  NEED(cuMemsetD32(notes, 0, 64));
  NEED(cuCtxSynchronize());
  if (argc > 1 && std::string_view(argv[1]) == "embedded") {
    embedded();
    NEED(cuCtxDestroy(context));
    return 0;
  }
  attributes();
  refused(false);
  refused(true);
  other_clusters();
  updates();
  from_elsewhere();
  captured();
  NEED(cuCtxDestroy(context));
}
