// Graphs that have memory, conditions or nodes that kernels update: changed after they were
// instantiated, instantiated again, and executable graphs that are updated from them.
#include <initializer_list>
#include <vector>

#include "tests/conformance/device_graphs.h"
#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

CUgraph new_graph() {
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  return graph;
}

void launch(CUgraphExec exec) {
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
}

void run_once(CUgraph graph) {
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  NEED(cuGraphExecDestroy(exec));
}

// Of the executable graph by the other one; which result there is besides is the driver's.
void update(CUgraphExec exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, graph, &info));
  VALUE(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

CUgraphNode add_fill(CUgraph graph, std::initializer_list<CUgraphNode> before, CUdeviceptr p,
                     uint32_t value) {
  const auto params = memset_params(p, value, kWords);
  CUgraphNode node;
  NEED(cuGraphAddMemsetNode(&node, graph, before.begin(), before.size(), &params, context));
  return node;
}
void set_fill(CUgraphNode node, CUdeviceptr p, uint32_t value) {
  const auto params = memset_params(p, value, kWords);
  SHOW(cuGraphMemsetNodeSetParams(node, &params));
}

CUgraphNode add_copy(CUgraph graph, std::initializer_list<CUgraphNode> before,
                     const CUDA_MEMCPY3D& params) {
  CUgraphNode node;
  NEED(cuGraphAddMemcpyNode(&node, graph, before.begin(), before.size(), &params, context));
  return node;
}

CUgraphNode add_memory(CUgraph graph, std::initializer_list<CUgraphNode> before, CUdeviceptr* p) {
  auto params = memory_params(kWords * 4);
  CUgraphNode node;
  NEED(cuGraphAddMemAllocNode(&node, graph, before.begin(), before.size(), &params));
  *p = params.dptr;
  return node;
}
CUgraphNode add_free(CUgraph graph, std::initializer_list<CUgraphNode> before, CUdeviceptr p) {
  CUgraphNode node;
  NEED(cuGraphAddMemFreeNode(&node, graph, before.begin(), before.size(), p));
  return node;
}

int last_call = 0;
void CUDA_CB note(void* value) { last_call = static_cast<int>(reinterpret_cast<intptr_t>(value)); }
CUDA_HOST_NODE_PARAMS host_params(intptr_t value) { return {note, reinterpret_cast<void*>(value)}; }

// Nodes and edges come and go, in the graph and in the body.
void conditions() {
  std::printf("-- conditions\n");
  CUgraph graph = new_graph();
  const Condition condition(graph, CU_GRAPH_COND_TYPE_IF, 1);
  CUgraphNode inside = add_fill(condition.body, {}, a, 1);
  run_once(graph);
  show_first("a", a);
  std::printf("as it was\n");
  run_once(graph);

  std::printf("with more\n");
  set_fill(inside, a, 2);
  CUgraphNode more = add_fill(condition.body, {inside}, a, 3);
  CUgraphNode behind = add_copy(graph, {condition.node}, copy_params(b, a, 4));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("a", a);
  show_first("b", b);
  set_fill(more, a, 4);
  update(exec, graph);
  launch(exec);
  show_first("b", b);
  NEED(cuGraphExecDestroy(exec));

  std::printf("with less, and the other way round\n");
  SHOW(cuGraphDestroyNode(more));
  SHOW(cuGraphRemoveDependencies(graph, &condition.node, &behind, nullptr, 1));
  SHOW(cuGraphAddDependencies(graph, &behind, &condition.node, nullptr, 1));
  NEED(cuMemsetD32(b, 0, 1));
  NEED(cuCtxSynchronize());
  run_once(graph);
  show_first("a", a);
  show_first("b", b);
  SHOW(cuGraphDestroyNode(behind));
  NEED(cuMemsetD32(b, 0, 1));
  NEED(cuCtxSynchronize());
  run_once(graph);
  show_first("b", b);
  SHOW(cuGraphDestroy(graph));
}

// A loop that counts `turns`, by its own handle.
struct Loop {
  explicit Loop(CUfunction count_down, uint32_t turns) : graph(new_graph()) {
    Condition loop(graph, CU_GRAPH_COND_TYPE_WHILE, 1);
    const auto left = memset_params(a, turns, 1);
    NEED(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &left, context));
    NEED(cuGraphAddDependencies(graph, &first, &loop.node, nullptr, 1));
    void* pointers[] = {&a, &b, &loop.handle};
    const auto kernel = kernel_params(count_down, pointers, 1);
    NEED(cuGraphAddKernelNode(&inside, loop.body, nullptr, 0, &kernel));
  }
  CUgraph graph;
  CUgraphNode first, inside;
};

void loops() {
  std::printf("-- loops\n");
  CUmodule module;
  CUfunction count_down;
  NEED(cuModuleLoadData(&module, kCountDown));
  NEED(cuModuleGetFunction(&count_down, module, "count_down"));
  Loop one(count_down, 3), other(count_down, 5);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, one.graph, 0));
  for (CUgraph graph : {one.graph, other.graph, other.graph}) {
    update(exec, graph);
    NEED(cuMemsetD32(b, 0, 1));
    NEED(cuCtxSynchronize());
    launch(exec);
    show_first("left", a);
    show_first("turns", b);
  }
  CUgraphExecUpdateResultInfo info{};
  add_fill(other.graph, {}, c, 1);
  SHOW(cuGraphExecUpdate(exec, other.graph, &info));
  VALUE(info.result);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(one.graph));
  std::printf("the other one itself\n");
  NEED(cuMemsetD32(b, 0, 1));
  NEED(cuCtxSynchronize());
  run_once(other.graph);
  show_first("turns", b);
  show_first("c", c);
  NEED(cuGraphDestroy(other.graph));
}

// Memory keeps its address while nodes come.
void memory() {
  std::printf("-- memory\n");
  CUgraph graph = new_graph();
  CUdeviceptr p, q;
  CUgraphNode alloc = add_memory(graph, {}, &p);
  FillParams values{p, 10, kWords};
  auto kernel = values.node(fill_kernel);
  CUgraphNode fill, call;
  NEED(cuGraphAddKernelNode(&fill, graph, &alloc, 1, &kernel));
  CUgraphNode copy = add_copy(graph, {fill}, copy_params(a, p, 4));
  auto host = host_params(1);
  NEED(cuGraphAddHostNode(&call, graph, &copy, 1, &host));
  CUgraphExec exec, second;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("a", a);
  VALUE(last_call);

  std::printf("with more\n");
  values.value = 11;
  SHOW(cuGraphKernelNodeSetParams(fill, &kernel));
  host = host_params(2);
  SHOW(cuGraphHostNodeSetParams(call, &host));
  CUgraphNode other = add_memory(graph, {copy}, &q);
  CUgraphNode set = add_fill(graph, {other}, q, 12);
  CUgraphNode out = add_copy(graph, {set}, copy_params(b, q, 4));
  add_free(graph, {out}, q);
  VALUE(cuGraphInstantiate(&second, graph, 0) != CUDA_SUCCESS);
  std::printf("it is as it was\n");
  SHOW(cuMemFreeAsync(p, stream));
  launch(exec);
  show_first("a", a);
  VALUE(last_call);
  SHOW(cuMemFreeAsync(p, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  for (int i = 0; i < 2; ++i) {
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    launch(exec);
    show_first("p", p);
    show_first("a", a);
    show_first("b", b);
    VALUE(last_call);
    VALUE(cuGraphLaunch(exec, stream) != CUDA_SUCCESS);  // what it left is there
    SHOW(cuMemFreeAsync(p, stream));
    values.value = 13;
    SHOW(cuGraphKernelNodeSetParams(fill, &kernel));
    host = host_params(3);
    SHOW(cuGraphHostNodeSetParams(call, &host));
    update(exec, graph);
    launch(exec);
    show_first("a", a);
    VALUE(last_call);
    SHOW(cuMemFreeAsync(p, stream));
    SHOW(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
  }
  // The graph was made executable without a node that frees it: one comes too late there.
  CUgraphNode node;
  SHOW(cuGraphAddMemFreeNode(&node, graph, &call, 1, p));
  std::printf("freed by another graph\n");
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  CUgraph abroad = new_graph();
  add_free(abroad, {}, p);
  SHOW(cuGraphInstantiate(&second, abroad, 0));
  for (int i = 0; i < 2; ++i) {
    launch(exec);
    launch(second);
  }
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphExecDestroy(second));
  SHOW(cuGraphDestroy(abroad));
  SHOW(cuGraphDestroy(graph));
}

// Copies of a graph with memory that come to use host memory, and no more.
void copies() {
  std::printf("-- copies\n");
  std::vector<uint32_t> here(kWords, 0);
  uint32_t* pinned = nullptr;
  NEED(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kWords * 4, 0));
  CUgraph graph = new_graph();
  CUdeviceptr p;
  CUgraphNode alloc = add_memory(graph, {}, &p);
  CUgraphNode fill = add_fill(graph, {alloc}, p, 20);
  CUgraphNode copy = add_copy(graph, {fill}, copy_params(a, p, 4));
  CUgraphNode behind = add_copy(graph, {copy}, copy_params(b, a, 4));
  add_free(graph, {behind}, p);
  uint32_t value = 20;
  const auto run_with = [&](const char* text, const CUDA_MEMCPY3D& params) {
    std::printf("%s\n", text);
    SHOW(cuGraphMemcpyNodeSetParams(copy, &params));
    set_fill(fill, p, ++value);
    here[0] = pinned[0] = 0;
    NEED(cuMemsetD32(a, 0, 1));
    NEED(cuCtxSynchronize());
    run_once(graph);
    VALUE(here[0]);
    VALUE(pinned[0]);
    show_first("a", a);
    show_first("b", b);
  };
  run_once(graph);
  show_first("b", b);
  run_with("to the host", copy_params(here.data(), p, 4));
  run_with("there again", copy_params(here.data(), p, 4));
  run_with("to the device", copy_params(a, p, 4));
  run_with("to pinned memory", copy_params(pinned, p, 4));
  run_with("to the host once more", copy_params(here.data(), p, 4));
  CUDA_MEMCPY3D within = row(4);
  within.srcMemoryType = within.dstMemoryType = CU_MEMORYTYPE_HOST;
  uint32_t from = 30;
  within.srcHost = &from;
  within.dstHost = here.data();
  run_with("from host to host", within);
  run_with("to the device at last", copy_params(a, p, 4));
  SHOW(cuGraphDestroy(graph));
  NEED(cuMemFreeHost(pinned));
}

// As programs do: where the update is refused, a new executable graph. Then a launch.
void change(CUgraphExec* exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info{};
  if (cuGraphExecUpdate(*exec, graph, &info) != CUDA_SUCCESS) {
    NEED(cuGraphExecDestroy(*exec));
    NEED(cuGraphInstantiate(exec, graph, 0));
  }
  launch(*exec);
}

// Updates when such a copy has nodes neither before nor behind it.
void updated_copies() {
  std::printf("-- updated copies\n");
  std::vector<uint32_t> here(kWords, 90), there(kWords, 0);
  uint32_t* pinned = nullptr;
  NEED(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kWords * 4, 0));
  pinned[0] = 91;
  CUgraph graph = new_graph();
  CUdeviceptr p;
  CUDA_MEMCPY3D from_host = row(4);
  from_host.srcMemoryType = CU_MEMORYTYPE_HOST;
  from_host.srcHost = here.data();
  from_host.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  from_host.dstDevice = a;
  CUgraphNode copy = add_copy(graph, {}, from_host), call;
  CUgraphNode alloc = add_memory(graph, {}, &p);
  auto host = host_params(1);
  NEED(cuGraphAddHostNode(&call, graph, &alloc, 1, &host));
  add_free(graph, {call}, p);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("a", a);

  std::printf("from pinned memory\n");
  from_host.srcHost = pinned;
  SHOW(cuGraphMemcpyNodeSetParams(copy, &from_host));
  change(&exec, graph);
  show_first("a", a);
  host = host_params(2);
  SHOW(cuGraphExecHostNodeSetParams(exec, call, &host));
  launch(exec);
  VALUE(last_call);
  SHOW(cuGraphNodeSetEnabled(exec, copy, 0));
  last_call = 0;
  launch(exec);
  VALUE(last_call);

  std::printf("from host to host\n");
  from_host.srcHost = here.data();
  SHOW(cuGraphMemcpyNodeSetParams(copy, &from_host));
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("a", a);
  from_host.dstMemoryType = CU_MEMORYTYPE_HOST;
  from_host.dstHost = there.data();
  SHOW(cuGraphMemcpyNodeSetParams(copy, &from_host));
  NEED(cuMemsetD32(a, 92, 1));
  NEED(cuCtxSynchronize());
  change(&exec, graph);
  show_first("a", a);
  VALUE(there[0]);
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(graph));
  NEED(cuMemFreeHost(pinned));
}

// A child of a graph with memory, and one that was moved into it. Memory that a graph frees is
// refused in new nodes, and in other graphs.
void children() {
  std::printf("-- children\n");
  CUgraph graph = new_graph(), child = new_graph(), with_memory = new_graph();
  CUdeviceptr p, q;
  CUgraphNode alloc = add_memory(graph, {}, &p), embedded, moved, inside[2];
  CUgraph own;
  add_fill(child, {}, p, 40);
  NEED(cuGraphAddChildGraphNode(&embedded, graph, &alloc, 1, child));
  NEED(cuGraphChildGraphNodeGetGraph(embedded, &own));
  size_t count = 1;
  NEED(cuGraphGetNodes(own, inside, &count));
  CUgraphNode other = add_memory(with_memory, {}, &q);
  CUgraphNode fill = add_fill(with_memory, {other}, q, 41);
  CUgraphNode copy = add_copy(with_memory, {fill}, copy_params(b, q, 4));
  add_free(with_memory, {copy}, q);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph = {with_memory, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  NEED(cuGraphAddNode(&moved, graph, &embedded, nullptr, 1, &params));
  CUgraphNode out = add_copy(graph, {moved}, copy_params(a, p, 4));
  add_free(graph, {out}, p);
  run_once(graph);
  show_first("a", a);
  show_first("b", b);

  std::printf("with other parameters and more\n");
  set_fill(inside[0], p, 42);
  set_fill(fill, q, 43);
  for (const CUdeviceptr memory : {p, q}) {
    const auto late = copy_params(c, memory, 4);
    CUgraphNode node;
    SHOW(cuGraphAddMemcpyNode(&node, own, inside, 1, &late, context));
    SHOW(cuGraphAddMemcpyNode(&node, graph, &alloc, 1, &late, context));
  }
  add_copy(own, {inside[0]}, copy_params(c, b, 4));
  run_once(graph);
  show_first("a", a);
  show_first("b", b);
  show_first("c", c);

  std::printf("with less\n");
  SHOW(cuGraphDestroyNode(inside[0]));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  set_fill(fill, q, 44);
  update(exec, graph);
  launch(exec);
  show_first("b", b);
  VALUE(cuGraphNodeSetEnabled(exec, inside[0], 0) != CUDA_SUCCESS);
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(graph));
  NEED(cuGraphDestroy(child));
}

// Calls and copies of ordinary memory in a child, in an executable graph.
void calls_of_children() {
  std::printf("-- calls of children\n");
  std::vector<uint32_t> here(2, 0);
  CUgraph graph = new_graph(), children[2];
  CUgraphNode before, embedded, behind;
  auto host = host_params(1);
  NEED(cuGraphAddHostNode(&before, graph, nullptr, 0, &host));
  NEED(cuMemsetD32(a, 80, 1));
  NEED(cuMemsetD32(b, 81, 1));
  NEED(cuCtxSynchronize());
  for (int i = 0; i < 2; ++i) {
    children[i] = new_graph();
    CUgraphNode copy = add_copy(children[i], {}, copy_params(&here[i], i == 0 ? a : b, 4)), call;
    host = host_params(10 + i);
    NEED(cuGraphAddHostNode(&call, children[i], &copy, 1, &host));
  }
  NEED(cuGraphAddChildGraphNode(&embedded, graph, &before, 1, children[0]));
  NEED(cuGraphAddEmptyNode(&behind, graph, &embedded, 1));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    if (i == 1) SHOW(cuGraphExecChildGraphNodeSetParams(exec, embedded, children[1]));
    for (int j = 0; j < 2; ++j) {
      launch(exec);
      VALUE(last_call);
    }
    VALUE(here[0]);
    VALUE(here[1]);
    here.assign(2, 0);
  }
  NEED(cuGraphExecDestroy(exec));
  for (CUgraph each : {graph, children[0], children[1]}) NEED(cuGraphDestroy(each));
}

// An executable graph with the memory of another graph.
void updates() {
  std::printf("-- other memory\n");
  CUgraph graphs[2];
  CUdeviceptr p[2];
  CUgraphNode call;
  for (int i = 0; i < 2; ++i) {
    graphs[i] = new_graph();
    CUgraphNode alloc = add_memory(graphs[i], {}, &p[i]);
    CUgraphNode fill = add_fill(graphs[i], {alloc}, p[i], 50 + i);
    CUgraphNode copy = add_copy(graphs[i], {fill}, copy_params(a, p[i], 4));
    const auto host = host_params(60 + i);
    NEED(cuGraphAddHostNode(&call, graphs[i], &copy, 1, &host));
  }
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graphs[0], 0));
  launch(exec);
  show_first("a", a);
  VALUE(last_call);
  SHOW(cuMemFreeAsync(p[0], stream));
  update(exec, graphs[1]);
  for (int i = 0; i < 2; ++i) {
    launch(exec);
    show_first("a", a);
    show_first("p", p[1]);
    VALUE(last_call);
    SHOW(cuMemFreeAsync(p[1], stream));
  }
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  for (CUgraph graph : graphs) SHOW(cuGraphDestroy(graph));

  // A graph that frees the memory of another one.
  std::printf("-- freed by another graph\n");
  CUgraph graph = new_graph(), freeing = new_graph();
  CUgraphNode alloc = add_memory(graph, {}, &p[0]);
  add_fill(graph, {alloc}, p[0], 52);
  CUgraphNode free_node = add_free(freeing, {}, p[0]);
  CUgraphExec frees;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphInstantiate(&frees, freeing, 0));
  launch(exec);
  launch(frees);
  NEED(cuGraphExecDestroy(frees));
  add_fill(freeing, {free_node}, a, 53);
  SHOW(cuGraphInstantiate(&frees, freeing, 0));
  launch(exec);
  launch(frees);
  show_first("a", a);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphExecDestroy(frees));
  NEED(cuGraphDestroy(freeing));
  NEED(cuGraphDestroy(graph));
}

// Nodes that kernels update: the handle stays.
void updatable() {
  std::printf("-- nodes that kernels update\n");
  constexpr auto kUpdatable = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  const auto show_notes = [](const char* text) {
    uint32_t log[64];
    NEED(cuMemcpyDtoH(log, notes, sizeof log));
    NEED(cuMemsetD32(notes, 0, 64));
    NEED(cuCtxSynchronize());
    std::printf("%s:", text);
    for (uint32_t i = 1; i <= log[0]; ++i) std::printf(" %u", log[i]);
    std::printf("\n");
  };
  CUgraph graph = new_graph();
  Arguments first{{notes, 1}}, second{{notes, 2}};
  auto params = node_params("mark", first);
  CUgraphNode node, before;
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  CUlaunchAttributeValue value{};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  NEED(cuGraphKernelNodeSetAttribute(node, kUpdatable, &value));
  const auto handle = reinterpret_cast<uint64_t>(value.deviceUpdatableKernelNode.devNode);
  run_once(graph);
  show_notes("alone");
  // A kernel before it gives it another parameter.
  Arguments update{{notes, handle, 8, 500, 0}};
  auto updating = node_params("update", update);
  NEED(cuGraphAddKernelNode(&before, graph, nullptr, 0, &updating));
  NEED(cuGraphAddDependencies(graph, &before, &node, nullptr, 1));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphUpload(exec, stream));
  launch(exec);
  show_notes("updated");
  NEED(cuGraphExecDestroy(exec));
  params = node_params("mark", second);
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  SHOW(cuGraphDestroyNode(before));
  run_once(graph);
  show_notes("with other parameters");
  NEED(cuGraphDestroy(graph));
}

// Attributes that a kernel node gets, and does not have any more.
void attributes() {
  std::printf("-- attributes\n");
  CUgraph graph = new_graph();
  const Condition condition(graph, CU_GRAPH_COND_TYPE_IF, 0);
  FillParams values{a, 70, kWords};
  auto kernel = values.node(fill_kernel);
  CUgraphNode node, plain;
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  values.p = b;
  NEED(cuGraphAddKernelNode(&plain, graph, nullptr, 0, &kernel));
  run_once(graph);
  CUlaunchAttributeValue value{};
  value.cooperative = 1;
  SHOW(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  run_once(graph);
  SHOW(cuGraphKernelNodeCopyAttributes(node, plain));
  values.p = a;
  values.value = 71;
  SHOW(cuGraphKernelNodeSetParams(node, &kernel));
  run_once(graph);
  show_first("a", a);
  show_first("b", b);
  NEED(cuGraphDestroy(graph));
}

// A copy that goes the other way: its half on the host stands before it then, not behind it.
void turned_copies() {
  std::printf("-- turned copies\n");
  std::vector<uint32_t> here(kWords, 80);
  NEED(cuMemsetD32(a, 81, kWords));
  NEED(cuCtxSynchronize());
  CUgraph graph = new_graph();
  CUdeviceptr p;
  const CUgraphNode alloc = add_memory(graph, {}, &p);
  CUDA_MEMCPY3D to_host = row(4), to_device = row(4);
  to_host.srcMemoryType = to_device.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  to_host.srcDevice = to_device.dstDevice = a;
  to_host.dstMemoryType = to_device.srcMemoryType = CU_MEMORYTYPE_HOST;
  to_host.dstHost = here.data();
  to_device.srcHost = here.data();
  const CUgraphNode copy = add_copy(graph, {alloc}, to_host);
  add_free(graph, {copy}, p);
  run_once(graph);
  VALUE(here[0]);
  for (uint32_t value = 82; value < 84; ++value) {
    here[0] = value;
    SHOW(cuGraphMemcpyNodeSetParams(copy, &to_device));
    run_once(graph);
    show_first("a", a);
    NEED(cuMemsetD32(a, 10 * value, 1));
    NEED(cuCtxSynchronize());
    SHOW(cuGraphMemcpyNodeSetParams(copy, &to_host));
    run_once(graph);
    VALUE(here[0]);
  }
  NEED(cuGraphDestroy(graph));
}

// Copies of pageable memory, whose edges have changed.
void nodes_at_fault() {
  std::printf("-- which node is at fault\n");
  static uint32_t words[kWords];
  for (const bool from_host : {true, false}) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode fill, copy;
    NEED(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS value{};
    value.dst = a;
    value.elementSize = 4;
    value.width = kWords;
    value.height = 1;
    NEED(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &value, context));
    CUDA_MEMCPY3D bytes{};
    bytes.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    bytes.dstMemoryType = from_host ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    bytes.srcHost = bytes.dstHost = words;
    bytes.srcDevice = bytes.dstDevice = b;
    bytes.WidthInBytes = sizeof words;
    bytes.Height = bytes.Depth = 1;
    NEED(cuGraphAddMemcpyNode(&copy, graph, nullptr, 0, &bytes, context));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphAddDependencies(graph, &fill, &copy, nullptr, 1));
    CUgraphExecUpdateResultInfo info{};
    SHOW(cuGraphExecUpdate(exec, graph, &info));
    VALUE(info.result);
    VALUE(info.errorNode == copy);
    VALUE(info.errorFromNode == fill);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }
}

// Clusters that no device has, given to a node and taken back. A driver may refuse them at once or
// when the graph is instantiated; nothing is left of them.
void refused_attributes(bool with_memory) {
  std::printf("-- refused attributes\n");
  constexpr auto kClusters = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  CUgraph graph = new_graph();
  CUdeviceptr p;
  if (with_memory) {
    CUgraphNode alloc = add_memory(graph, {}, &p);
    add_free(graph, {alloc}, p);
  } else {
    Condition(graph, CU_GRAPH_COND_TYPE_IF, 0);
  }
  const auto is_refused = [graph](CUgraphNode node) {
    CUlaunchAttributeValue value{};
    value.clusterDim = {64, 1, 1};
    CUgraphExec exec;
    if (cuGraphKernelNodeSetAttribute(node, kClusters, &value) != CUDA_SUCCESS) return true;
    if (cuGraphInstantiate(&exec, graph, 0) != CUDA_SUCCESS) return true;
    NEED(cuGraphExecDestroy(exec));
    return false;
  };
  const auto take_back = [](CUgraphNode node) {
    CUlaunchAttributeValue value{};
    value.clusterDim = {1, 1, 1};
    SHOW(cuGraphKernelNodeSetAttribute(node, kClusters, &value));
  };
  FillParams values{b, 93, kWords};
  auto kernel = values.node(fill_kernel);
  kernel.gridDimX = 64;
  CUgraphNode node;
  NEED(cuMemsetD32(b, 0, 1));
  NEED(cuCtxSynchronize());
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  VALUE(is_refused(node));
  take_back(node);
  values.p = a;
  SHOW(cuGraphKernelNodeSetParams(node, &kernel));
  run_once(graph);
  show_first("a", a);
  show_first("b", b);

  std::printf("of a node that was there\n");
  values.value = 94;
  SHOW(cuGraphKernelNodeSetParams(node, &kernel));
  VALUE(is_refused(node));
  take_back(node);
  values.value = 93;
  SHOW(cuGraphKernelNodeSetParams(node, &kernel));
  run_once(graph);
  show_first("a", a);
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  set_up();
  NEED(cuModuleLoadData(&module, kGraphKernels));
  NEED(cuMemAlloc(&notes, 64 * 4));
  NEED(cuMemsetD32(notes, 0, 64));
  NEED(cuCtxSynchronize());
  conditions();
  loops();
  memory();
  copies();
  updated_copies();
  turned_copies();
  children();
  calls_of_children();
  updates();
  updatable();
  attributes();
  nodes_at_fault();
  refused_attributes(/*with_memory=*/false);
  refused_attributes(/*with_memory=*/true);
  NEED(cuCtxDestroy(context));
  return 0;
}
