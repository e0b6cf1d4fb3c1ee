// Graphs that are built node by node: nodes, edges, launches, changes of executable graphs, and
// wrong calls.
#include "tests/conformance/graphs.h"

#include <algorithm>
#include <atomic>

namespace {

using namespace in_world;

void build_and_launch() {
  std::printf("-- build and launch\n");
  CUgraph graph;
  SHOW(cuGraphCreate(&graph, 0));
  CUgraphNode set_a, set_b, sum, back;
  const auto memset = memset_params(a, 5, kWords);
  SHOW(cuGraphAddMemsetNode(&set_a, graph, nullptr, 0, &memset, context));
  FillParams fill{b, 7, kWords};
  auto kernel = fill.node(fill_kernel);
  SHOW(cuGraphAddKernelNode(&set_b, graph, nullptr, 0, &kernel));
  AddParams add{a, b, c, kWords};
  auto adding = add.node(add_kernel);
  const CUgraphNode both[] = {set_a, set_b};
  SHOW(cuGraphAddKernelNode(&sum, graph, both, 2, &adding));
  std::vector<uint32_t> host(kWords);
  const auto copy = copy_params(host.data(), c, kWords * 4);
  SHOW(cuGraphAddMemcpyNode(&back, graph, &sum, 1, &copy, context));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphUpload(exec, stream));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(host[0]);
  VALUE(host[kWords - 1]);

  // The parameters were copied; the executable graph does not change with the graph.
  const auto other = memset_params(a, 50, kWords);
  SHOW(cuGraphMemsetNodeSetParams(set_a, &other));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(host[0]);
  SHOW(cuGraphExecMemsetNodeSetParams(exec, set_a, &other, context));
  fill.value = 8;
  SHOW(cuGraphExecKernelNodeSetParams(exec, set_b, &kernel));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(host[0]);

  // Disabled nodes do nothing.
  unsigned enabled = 7;
  SHOW(cuGraphNodeGetEnabled(exec, set_a, &enabled));
  VALUE(enabled);
  NEED(cuMemsetD32(a, 1, kWords));
  NEED(cuCtxSynchronize());
  SHOW(cuGraphNodeSetEnabled(exec, set_a, 0));
  SHOW(cuGraphNodeGetEnabled(exec, set_a, &enabled));
  VALUE(enabled);
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(host[0]);
  SHOW(cuGraphNodeSetEnabled(exec, set_a, 1));

  // It outlives its graph, and a launch outlives it.
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuStreamSynchronize(stream));
  VALUE(host[0]);
}

struct Log {
  std::atomic<int> count{0};
  std::vector<int> entries;
} order;

void CUDA_CB note(void* data) {
  order.entries.push_back(static_cast<int>(reinterpret_cast<intptr_t>(data)));
}
void CUDA_CB count(void*) { ++order.count; }

CUDA_HOST_NODE_PARAMS noting(intptr_t number) { return {note, reinterpret_cast<void*>(number)}; }

void host_nodes_and_children() {
  std::printf("-- host nodes and child graphs\n");
  CUgraph child, graph;
  NEED(cuGraphCreate(&child, 0));
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode in_child[2], first, middle, last, empty;
  CUDA_HOST_NODE_PARAMS params = noting(1);
  SHOW(cuGraphAddHostNode(&in_child[0], child, nullptr, 0, &params));
  params = noting(2);
  SHOW(cuGraphAddHostNode(&in_child[1], child, in_child, 1, &params));
  params = noting(0);
  SHOW(cuGraphAddHostNode(&first, graph, nullptr, 0, &params));
  SHOW(cuGraphAddChildGraphNode(&middle, graph, &first, 1, child));
  SHOW(cuGraphAddEmptyNode(&empty, graph, &middle, 1));
  params = noting(3);
  SHOW(cuGraphAddHostNode(&last, graph, &empty, 1, &params));
  // The child was copied: what happens to the original does not count.
  SHOW(cuGraphDestroy(child));
  CUgraph embedded;
  SHOW(cuGraphChildGraphNodeGetGraph(middle, &embedded));
  SHOW(cuGraphDestroy(embedded));
  size_t nodes = 0;
  SHOW(cuGraphGetNodes(embedded, nullptr, &nodes));
  VALUE(nodes);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) NEED(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  for (const int entry : order.entries) std::printf(" %d", entry);
  std::printf("\n");
  params = noting(9);
  SHOW(cuGraphExecHostNodeSetParams(exec, last, &params));
  order.entries.clear();
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  for (const int entry : order.entries) std::printf(" %d", entry);
  std::printf("\n");
  SHOW(cuGraphHostNodeGetParams(last, &params));
  VALUE(reinterpret_cast<intptr_t>(params.userData));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(graph));
}

void shape() {
  std::printf("-- nodes and edges\n");
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode n[4];
  for (auto& node : n) NEED(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  const CUgraphNode from[] = {n[0], n[0], n[1], n[2]}, to[] = {n[1], n[2], n[3], n[3]};
  SHOW(cuGraphAddDependencies(graph, from, to, nullptr, 4));
  const auto index = [&n](CUgraphNode node) {
    return node == nullptr ? -1 : static_cast<int>(std::find(n, n + 4, node) - n);
  };
  CUgraphNode list[6], list_to[6];
  size_t size = 6;
  SHOW(cuGraphGetNodes(graph, list, &size));
  for (const auto& node : list) std::printf(" %d", index(node));
  std::printf(" of %zu\n", size);
  size = 6;
  SHOW(cuGraphGetRootNodes(graph, list, &size));
  std::printf(" %d %d of %zu\n", index(list[0]), index(list[1]), size);
  SHOW(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &size));
  VALUE(size);
  size = 6;
  SHOW(cuGraphGetEdges(graph, list, list_to, nullptr, &size));
  std::vector<int> edges;
  for (size_t i = 0; i < size; ++i) edges.push_back(10 * index(list[i]) + index(list_to[i]));
  std::sort(edges.begin(), edges.end());
  for (const int edge : edges) std::printf(" %02d", edge);
  std::printf(", then %d\n", index(list[4]));
  SHOW(cuGraphNodeGetDependencies(n[3], nullptr, nullptr, &size));
  VALUE(size);
  SHOW(cuGraphNodeGetDependencies(n[3], list, nullptr, &size));
  std::printf(" %d\n", index(list[0]) + index(list[1]));
  size = 1;
  SHOW(cuGraphNodeGetDependentNodes(n[0], list, nullptr, &size));
  VALUE(size);
  CUgraphNodeType type;
  SHOW(cuGraphNodeGetType(n[0], &type));
  VALUE(type);

  std::printf("-- wrong edges\n");
  SHOW(cuGraphAddDependencies(graph, from, to, nullptr, 1));  // is there
  SHOW(cuGraphAddDependencies(graph, n, n, nullptr, 1));      // to itself
  SHOW(cuGraphAddDependencies(graph, nullptr, to, nullptr, 1));
  SHOW(cuGraphAddDependencies(graph, nullptr, nullptr, nullptr, 0));
  SHOW(cuGraphRemoveDependencies(graph, n, n + 3, nullptr, 1));  // is not there
  const CUgraphNode twice[] = {n[0], n[0]};
  CUgraphNode node;
  SHOW(cuGraphAddEmptyNode(&node, graph, twice, 2));
  SHOW(cuGraphAddEmptyNode(&node, graph, nullptr, 1));
  SHOW(cuGraphAddEmptyNode(&node, nullptr, nullptr, 0));
  CUgraph other;
  CUgraphNode foreign;
  NEED(cuGraphCreate(&other, 0));
  NEED(cuGraphAddEmptyNode(&foreign, other, nullptr, 0));
  SHOW(cuGraphAddEmptyNode(&node, graph, &foreign, 1));
  SHOW(cuGraphAddDependencies(graph, n, &foreign, nullptr, 1));
  CUgraphEdgeData data{};
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  SHOW(cuGraphAddDependencies(graph, n, n + 3, &data, 1));  // between kernels only

  // A cycle is noticed when the graph is instantiated.
  SHOW(cuGraphAddDependencies(graph, n + 3, n, nullptr, 1));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  SHOW(cuGraphInstantiateWithParams(&exec, graph, &params));
  VALUE(params.result_out);
  VALUE(params.hErrNode_out != nullptr);
  SHOW(cuGraphRemoveDependencies(graph, n + 3, n, nullptr, 1));
  SHOW(cuGraphDestroyNode(n[1]));
  size = 6;
  SHOW(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &size));
  VALUE(size);
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphDestroy(other));
}

void wrong_calls() {
  std::printf("-- wrong calls\n");
  CUgraph graph;
  SHOW(cuGraphCreate(nullptr, 0));
  SHOW(cuGraphCreate(&graph, 1));
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node;
  CUgraphExec exec;
  FillParams fill{a, 1, kWords};
  auto kernel = fill.node(fill_kernel);
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, nullptr));
  SHOW(cuGraphAddKernelNode(nullptr, graph, nullptr, 0, &kernel));
  kernel.blockDimX = 0;
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  kernel.blockDimX = 32;
  kernel.func = nullptr;
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  auto memset = memset_params(a, 1, kWords);
  memset.elementSize = 3;
  SHOW(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &memset, context));
  memset = memset_params(a, 1, 0);
  SHOW(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &memset, context));
  SHOW(cuGraphAddMemsetNode(&node, graph, nullptr, 0, nullptr, context));
  SHOW(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr, context));
  CUDA_HOST_NODE_PARAMS host{nullptr, nullptr};
  SHOW(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
  SHOW(cuGraphAddHostNode(&node, graph, nullptr, 0, nullptr));
  SHOW(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, nullptr));
  SHOW(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr));
  SHOW(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, a));  // not of an allocation node
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  params.reserved0[0] = 1;
  SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  SHOW(cuGraphInstantiate(nullptr, graph, 0));
  SHOW(cuGraphInstantiate(&exec, nullptr, 0));
  SHOW(cuGraphInstantiate(&exec, graph, 1024));
  SHOW(cuGraphInstantiate(
      &exec, graph,
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
  SHOW(cuGraphLaunch(nullptr, stream));
  SHOW(cuGraphUpload(nullptr, stream));
  SHOW(cuGraphExecDestroy(nullptr));
  SHOW(cuGraphDestroy(nullptr));
  SHOW(cuGraphDestroyNode(nullptr));
  SHOW(cuGraphClone(nullptr, graph));
  SHOW(cuGraphGetNodes(graph, nullptr, nullptr));

  // The kinds of nodes and calls must fit.
  NEED(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  SHOW(cuGraphMemsetNodeGetParams(node, &memset));
  SHOW(cuGraphKernelNodeGetParams(node, nullptr));
  NEED(cuGraphInstantiate(&exec, graph, 0));
  unsigned enabled = 0;
  SHOW(cuGraphNodeSetEnabled(exec, node, 0));
  SHOW(cuGraphNodeGetEnabled(exec, node, &enabled));
  CUgraphNode later;
  NEED(cuGraphAddEmptyNode(&later, graph, nullptr, 0));
  host = {count, nullptr};
  SHOW(cuGraphExecHostNodeSetParams(exec, later, &host));
  SHOW(cuGraphExecHostNodeSetParams(exec, node, &host));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));

  // An empty graph does nothing, in order.
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void asking_for_parameters() {
  std::printf("-- parameters\n");
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node;
  FillParams fill{a, 21, kWords};
  auto kernel = fill.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  fill.value = 0;
  CUDA_KERNEL_NODE_PARAMS got{};
  SHOW(cuGraphKernelNodeGetParams(node, &got));
  VALUE(got.func == fill_kernel);
  VALUE(got.gridDimX);
  VALUE(got.blockDimX);
  VALUE(*static_cast<uint32_t*>(got.kernelParams[1]));
  VALUE(*static_cast<CUdeviceptr*>(got.kernelParams[0]) == a);
  VALUE(got.extra == nullptr);
  got.gridDimX = 3;
  SHOW(cuGraphKernelNodeSetParams(node, &got));
  SHOW(cuGraphKernelNodeGetParams(node, &got));
  VALUE(got.gridDimX);

  CUkernelNodeAttrValue value{};
  SHOW(cuGraphKernelNodeGetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value));
  VALUE(value.cooperative);
  value.cooperative = 1;
  SHOW(cuGraphKernelNodeSetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value));
  value = {};
  SHOW(cuGraphKernelNodeGetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value));
  VALUE(value.cooperative);
  CUgraphNode second;
  NEED(cuGraphAddKernelNode(&second, graph, nullptr, 0, &kernel));
  SHOW(cuGraphKernelNodeCopyAttributes(second, node));
  value = {};
  SHOW(cuGraphKernelNodeGetAttribute(second, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value));
  VALUE(value.cooperative);

  auto memset = memset_params(a, 5, kWords);
  NEED(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &memset, context));
  memset = {};
  SHOW(cuGraphMemsetNodeGetParams(node, &memset));
  VALUE(memset.dst == a);
  VALUE(memset.value);
  VALUE(memset.width);
  VALUE(memset.elementSize);
  auto copy = copy_params(b, a, 16);
  NEED(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  copy = {};
  SHOW(cuGraphMemcpyNodeGetParams(node, &copy));
  VALUE(copy.srcDevice == a);
  VALUE(copy.dstDevice == b);
  VALUE(copy.WidthInBytes);
  copy.WidthInBytes = 32;
  SHOW(cuGraphMemcpyNodeSetParams(node, &copy));
  SHOW(cuGraphMemcpyNodeGetParams(node, &copy));
  VALUE(copy.WidthInBytes);
  SHOW(cuGraphDestroy(graph));
}

void clones() {
  std::printf("-- clones\n");
  CUgraph graph, clone;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode n[2], found = nullptr;
  auto memset = memset_params(a, 70, kWords);
  NEED(cuGraphAddMemsetNode(&n[0], graph, nullptr, 0, &memset, context));
  NEED(cuGraphAddEmptyNode(&n[1], graph, n, 1));
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphNodeFindInClone(&found, n[0], clone));
  VALUE(found != nullptr && found != n[0]);
  CUgraphNode none = nullptr;
  SHOW(cuGraphNodeFindInClone(&none, n[0], graph));
  memset.value = 71;
  SHOW(cuGraphMemsetNodeSetParams(n[0], &memset));
  size_t edges = 0;
  SHOW(cuGraphGetEdges(clone, nullptr, nullptr, nullptr, &edges));
  VALUE(edges);
  SHOW(cuGraphDestroy(graph));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, clone, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(clone));
}

void updates() {
  std::printf("-- updates of executable graphs\n");
  CUgraph graph, next;
  CUgraphExec exec;
  CUgraphNode n[3], m[3];
  const auto build = [](CUgraph* made, CUgraphNode* nodes, uint32_t value) {
    NEED(cuGraphCreate(made, 0));
    const auto memset = memset_params(a, value, kWords);
    NEED(cuGraphAddMemsetNode(&nodes[0], *made, nullptr, 0, &memset, context));
    FillParams fill{b, value + 1, kWords};
    const auto kernel = fill.node(fill_kernel);
    NEED(cuGraphAddKernelNode(&nodes[1], *made, nodes, 1, &kernel));
    NEED(cuGraphAddEmptyNode(&nodes[2], *made, nodes, 2));
  };
  build(&graph, n, 10);
  NEED(cuGraphInstantiate(&exec, graph, 0));
  build(&next, m, 20);
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, next, &info));
  VALUE(info.result);
  VALUE(info.errorNode == nullptr);
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  show_first("b", b);

  // An edge less.
  SHOW(cuGraphRemoveDependencies(next, m, m + 2, nullptr, 1));
  SHOW(cuGraphExecUpdate(exec, next, &info));
  VALUE(info.result);
  VALUE(info.errorNode == m[2]);
  SHOW(cuGraphAddDependencies(next, m, m + 2, nullptr, 1));
  // A node more.
  CUgraphNode more;
  NEED(cuGraphAddEmptyNode(&more, next, nullptr, 0));
  SHOW(cuGraphExecUpdate(exec, next, &info));
  VALUE(info.result);
  VALUE(info.errorNode == nullptr);
  NEED(cuGraphDestroy(next));
  // Another type of node.
  NEED(cuGraphCreate(&next, 0));
  NEED(cuGraphAddEmptyNode(&m[0], next, nullptr, 0));
  FillParams fill{b, 1, kWords};
  const auto kernel = fill.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&m[1], next, m, 1, &kernel));
  NEED(cuGraphAddEmptyNode(&m[2], next, m, 2));
  SHOW(cuGraphExecUpdate(exec, next, &info));
  VALUE(info.result);
  VALUE(info.errorNode == m[0]);
  SHOW(cuGraphExecUpdate(exec, nullptr, &info));
  SHOW(cuGraphExecUpdate(exec, next, nullptr));
  // What failed changed nothing.
  NEED(cuMemsetD32(a, 0, kWords));
  NEED(cuCtxSynchronize());
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  NEED(cuGraphDestroy(next));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void events() {
  std::printf("-- events\n");
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode record, wait, set;
  CUevent before, after, got;
  NEED(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, before));
  const auto copy = copy_params(b, a, 4);
  NEED(cuGraphAddMemcpyNode(&set, graph, &wait, 1, &copy, context));
  SHOW(cuGraphAddEventRecordNode(&record, graph, &set, 1, after));
  SHOW(cuGraphEventWaitNodeGetEvent(wait, &got));
  VALUE(got == before);
  SHOW(cuGraphEventRecordNodeGetEvent(record, &got));
  VALUE(got == after);
  SHOW(cuGraphEventRecordNodeGetEvent(wait, &got));
  NEED(cuGraphInstantiate(&exec, graph, 0));

  // The launch waits for what another stream does, and the event for the launch.
  CUstream other;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  uint32_t* flag;
  NEED(cuMemAllocHost(reinterpret_cast<void**>(&flag), 4));
  *flag = 0;
  NEED(cuStreamWaitValue32(other, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  NEED(cuMemsetD32Async(a, 77, 1, other));
  NEED(cuEventRecord(before, other));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuEventQuery(after));
  *static_cast<volatile uint32_t*>(flag) = 1;
  SHOW(cuEventSynchronize(after));
  show_first("b", b);
  SHOW(cuStreamSynchronize(stream));

  // Other events, in the executable graph only.
  SHOW(cuGraphExecEventWaitNodeSetEvent(exec, wait, after));
  SHOW(cuGraphExecEventRecordNodeSetEvent(exec, record, before));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuEventSynchronize(before));
  SHOW(cuGraphEventWaitNodeGetEvent(wait, &got));
  VALUE(got == before);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  NEED(cuMemFreeHost(flag));
  NEED(cuStreamDestroy(other));
}

void values_in_memory() {
  std::printf("-- batches of operations on memory\n");
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, a, {5}, 0, 0};
  operations[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, a, {5}, CU_STREAM_WAIT_VALUE_GEQ, 0};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{context, 2, operations, 0};
  SHOW(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  CUDA_BATCH_MEM_OP_NODE_PARAMS got{};
  SHOW(cuGraphBatchMemOpNodeGetParams(node, &got));
  VALUE(got.count);
  VALUE(got.paramArray[0].writeValue.value);
  NEED(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  operations[0].writeValue.value = operations[1].waitValue.value = 6;
  SHOW(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  params.count = 1;
  SHOW(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  SHOW(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, nullptr));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  set_up();
  build_and_launch();
  host_nodes_and_children();
  shape();
  wrong_calls();
  asking_for_parameters();
  clones();
  updates();
  events();
  values_in_memory();
  return 0;
}
