// New parameters for nodes of graphs and of executable graphs, by the calls for one kind and by the
// general ones; edges with data; all forms of instantiation; graphs printed; textures in graphs;
// memory and conditions in graphs inside of graphs.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

void clear() {
  for (const CUdeviceptr each : {a, b, c}) NEED(cuMemsetD32(each, 0, kWords));
  NEED(cuCtxSynchronize());
}

void launch(CUgraphExec exec) {
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
}

void show_words(const char* text, CUdeviceptr p, size_t count) {
  std::vector<uint32_t> words(count);
  NEED(cuMemcpyDtoH(words.data(), p, count * 4));
  std::printf("%s:", text);
  for (const uint32_t word : words) std::printf(" %x", word);
  std::printf("\n");
}

int last_call;
void CUDA_CB note(void* data) { last_call = static_cast<int>(reinterpret_cast<intptr_t>(data)); }

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params{};
  params.type = type;
  return params;
}

CUgraphNodeParams kernel_node(FillParams& fill) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  const auto kernel = fill.node(fill_kernel);
  params.kernel.func = kernel.func;
  params.kernel.gridDimX = kernel.gridDimX;
  params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = kernel.blockDimX;
  params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = kernel.kernelParams;
  return params;
}

CUgraphNodeParams fill_node(CUdeviceptr p, uint32_t value, size_t words) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  params.memset.dst = p;
  params.memset.value = value;
  params.memset.elementSize = 4;
  params.memset.width = words;
  params.memset.height = 1;
  params.memset.ctx = context;
  return params;
}

CUgraphNodeParams copy_node(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = copy_params(to, from, bytes);
  return params;
}

// Nodes of every kind that has parameters, made and changed by the general calls.
void general_calls() {
  std::printf("-- nodes by the general calls\n");
  clear();
  CUgraph graph, child;
  CUgraphNode fill, kernel, copy, host, operations, record, wait, inner, embedded;
  CUevent first, second;
  NEED(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  CUgraphNodeParams params = fill_node(a, 1, kWords);
  SHOW(cuGraphAddNode(&fill, graph, nullptr, nullptr, 0, &params));
  FillParams values{b, 2, kWords};
  params = kernel_node(values);
  SHOW(cuGraphAddNode(&kernel, graph, &fill, nullptr, 1, &params));
  params = copy_node(c, a, 4);
  SHOW(cuGraphAddNode(&copy, graph, &kernel, nullptr, 1, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_HOST);
  params.host = {note, reinterpret_cast<void*>(3)};
  SHOW(cuGraphAddNode(&host, graph, &copy, nullptr, 1, &params));
  CUstreamBatchMemOpParams operation{};
  operation.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, c + 4, {4}, 0, 0};
  params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp = {context, 1, &operation, 0};
  SHOW(cuGraphAddNode(&operations, graph, &host, nullptr, 1, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  params.eventRecord.event = first;
  SHOW(cuGraphAddNode(&record, graph, &operations, nullptr, 1, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  params.eventWait.event = second;
  SHOW(cuGraphAddNode(&wait, graph, &operations, nullptr, 1, &params));
  params = fill_node(c + 8, 5, 1);
  SHOW(cuGraphAddNode(&inner, child, nullptr, nullptr, 0, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = child;
  SHOW(cuGraphAddNode(&embedded, graph, &operations, nullptr, 1, &params));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_words("c", c, 3);
  VALUE(last_call);
  SHOW(cuEventQuery(first));

  std::printf("-- changed in the executable graph\n");
  params = fill_node(a, 11, kWords);
  SHOW(cuGraphExecNodeSetParams(exec, fill, &params));
  values.value = 12;
  params = kernel_node(values);
  SHOW(cuGraphExecNodeSetParams(exec, kernel, &params));
  params = copy_node(c, b, 4);
  SHOW(cuGraphExecNodeSetParams(exec, copy, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_HOST);
  params.host = {note, reinterpret_cast<void*>(13)};
  SHOW(cuGraphExecNodeSetParams(exec, host, &params));
  operation.writeValue.value = 14;
  params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp = {context, 1, &operation, 0};
  SHOW(cuGraphExecNodeSetParams(exec, operations, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  params.eventRecord.event = second;
  SHOW(cuGraphExecNodeSetParams(exec, record, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  params.eventWait.event = first;
  SHOW(cuGraphExecNodeSetParams(exec, wait, &params));
  CUgraph other;
  CUgraphNode in_other;
  NEED(cuGraphCreate(&other, 0));
  params = fill_node(c + 8, 15, 1);
  NEED(cuGraphAddNode(&in_other, other, nullptr, nullptr, 0, &params));
  params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = other;
  SHOW(cuGraphExecNodeSetParams(exec, embedded, &params));
  launch(exec);
  show_words("a", a, 1);
  show_words("c", c, 3);
  VALUE(last_call);
  SHOW(cuEventQuery(second));
  const auto again = memset_params(c + 8, 16, 1);
  NEED(cuGraphMemsetNodeSetParams(in_other, &again));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, embedded, other));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, embedded, nullptr));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, fill, other));
  NEED(cuGraphAddEmptyNode(&in_other, other, nullptr, 0));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, embedded, other));  // of another shape
  launch(exec);
  show_words("c", c, 3);
  // What does not fit changes nothing.
  params = fill_node(a, 99, kWords);
  SHOW(cuGraphExecNodeSetParams(exec, kernel, &params));
  SHOW(cuGraphExecNodeSetParams(exec, nullptr, &params));
  SHOW(cuGraphExecNodeSetParams(nullptr, fill, &params));
  SHOW(cuGraphExecNodeSetParams(exec, fill, nullptr));
  NEED(cuGraphExecDestroy(exec));

  std::printf("-- and in the graph\n");
  params = fill_node(a, 21, kWords);
  SHOW(cuGraphNodeSetParams(fill, &params));
  values.value = 22;
  params = kernel_node(values);
  SHOW(cuGraphNodeSetParams(kernel, &params));
  params = copy_node(c, b, 4);
  SHOW(cuGraphNodeSetParams(copy, &params));
  CUDA_HOST_NODE_PARAMS host_params{note, reinterpret_cast<void*>(23)};
  SHOW(cuGraphHostNodeSetParams(host, &host_params));
  operation.writeValue.value = 24;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{context, 1, &operation, 0};
  SHOW(cuGraphBatchMemOpNodeSetParams(operations, &batch));
  SHOW(cuGraphEventRecordNodeSetEvent(record, second));
  SHOW(cuGraphEventWaitNodeSetEvent(wait, first));
  SHOW(cuGraphEventWaitNodeSetEvent(record, first));
  SHOW(cuGraphEventRecordNodeSetEvent(record, nullptr));
  SHOW(cuGraphNodeSetParams(fill, &params));
  SHOW(cuGraphNodeSetParams(fill, nullptr));
  CUevent got;
  SHOW(cuGraphEventRecordNodeGetEvent(record, &got));
  VALUE(got == second);
  CUDA_HOST_NODE_PARAMS host_got{};
  SHOW(cuGraphHostNodeGetParams(host, &host_got));
  VALUE(reinterpret_cast<intptr_t>(host_got.userData));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_words("a", a, 1);
  show_words("c", c, 3);
  VALUE(last_call);
  NEED(cuGraphExecDestroy(exec));
  for (const CUgraph each : {graph, child, other}) NEED(cuGraphDestroy(each));
}

// Elements of one and two bytes, and rows.
void fills() {
  std::printf("-- fills\n");
  clear();
  CUgraph graph;
  CUgraphExec exec;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode bytes, halves, box;
  CUDA_MEMSET_NODE_PARAMS params = memset_params(a, 0x5a, 5);
  params.elementSize = 1;
  SHOW(cuGraphAddMemsetNode(&bytes, graph, nullptr, 0, &params, context));
  params = memset_params(b, 0x1234, 3);
  params.elementSize = 2;
  SHOW(cuGraphAddMemsetNode(&halves, graph, nullptr, 0, &params, context));
  params = memset_params(c, 7, 2);
  params.pitch = 16;
  params.height = 3;
  SHOW(cuGraphAddMemsetNode(&box, graph, nullptr, 0, &params, context));
  params.pitch = 4;
  SHOW(cuGraphMemsetNodeSetParams(box, &params));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_words("a", a, 2);
  show_words("b", b, 2);
  show_words("c", c, 12);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void edges_with_data() {
  std::printf("-- edges with data\n");
  clear();
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode first, second, third, fill, got[3];
  NEED(cuGraphCreate(&graph, 0));
  FillParams to_a{a, 3, kWords}, to_b{b, 4, kWords};
  AddParams sum{a, b, c, kWords};
  auto kernel = to_a.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&first, graph, nullptr, 0, &kernel));
  kernel = to_b.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&second, graph, nullptr, 0, &kernel));
  CUgraphEdgeData programmatic{};
  programmatic.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  programmatic.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  SHOW(cuGraphAddDependencies(graph, &first, &second, &programmatic, 1));
  SHOW(cuGraphAddDependencies(graph, &first, &second, nullptr, 1));
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  params.kernel.func = add_kernel;
  params.kernel.gridDimX = 2;
  params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = 32;
  params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = sum.pointers;
  SHOW(cuGraphAddNode(&third, graph, &second, nullptr, 1, &params));
  params = fill_node(a + 4, 9, 1);
  SHOW(cuGraphAddNode(&fill, graph, &third, &programmatic, 1, &params));  // no kernel
  CUgraphEdgeData wrong = programmatic;
  wrong.from_port = 9;
  SHOW(cuGraphAddDependencies(graph, &first, &third, &wrong, 1));
  wrong = programmatic;
  wrong.to_port = 1;
  SHOW(cuGraphAddDependencies(graph, &first, &third, &wrong, 1));
  CUgraphEdgeData data[3]{};
  size_t count = 3;
  SHOW(cuGraphNodeGetDependencies(second, got, data, &count));
  VALUE(count);
  VALUE(got[0] == first);
  VALUE(data[0].type);
  VALUE(data[0].from_port);
  count = 3;
  SHOW(cuGraphNodeGetDependencies(second, got, nullptr, &count));
  count = 3;
  SHOW(cuGraphNodeGetDependentNodes(first, got, data, &count));
  VALUE(got[0] == second);
  VALUE(data[0].type);
  CUgraphNode from[3], to[3];
  count = 3;
  SHOW(cuGraphGetEdges(graph, from, to, nullptr, &count));
  count = 3;
  SHOW(cuGraphGetEdges(graph, from, to, data, &count));
  VALUE(count);
  const auto* const at = std::find(from, from + 2, first);
  VALUE(at != from + 2 && data[at - from].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_words("c", c, 2);
  // Another edge is another graph.
  SHOW(cuGraphRemoveDependencies(graph, &first, &second, nullptr, 1));
  SHOW(cuGraphRemoveDependencies(graph, &first, &second, &programmatic, 1));
  SHOW(cuGraphAddDependencies(graph, &first, &second, nullptr, 1));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void instantiations() {
  std::printf("-- forms of instantiation\n");
  clear();
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  FillParams values{a, 6, kWords};
  auto kernel = values.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  for (const cuuint64_t flags :
       {cuuint64_t{0}, cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH},
        cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD},
        cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY}}) {
    std::printf("flags %d\n", static_cast<int>(flags));
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = flags;
    params.hUploadStream = stream;
    params.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    SHOW(cuGraphInstantiateWithParams(&exec, graph, &params));
    VALUE(params.result_out);
    VALUE(params.hErrNode_out == nullptr);
    cuuint64_t got = 99;
    SHOW(cuGraphExecGetFlags(exec, &got));
    VALUE(got);
    SHOW(cuGraphUpload(exec, stream));
    launch(exec);
    show_first("a", a);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuMemsetD32(a, 0, kWords));
    NEED(cuCtxSynchronize());
  }
  SHOW(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  CUkernelNodeAttrValue priority{};
  priority.priority = -1;
  SHOW(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &priority));
  launch(exec);
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphInstantiateWithParams(&exec, graph, nullptr));
  SHOW(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
  NEED(cuGraphDestroy(graph));
}

// What drivers print differs; that it is a graph with all nodes and edges does not.
void printed() {
  std::printf("-- printed\n");
  CUgraph graph;
  CUgraphNode first, second;
  NEED(cuGraphCreate(&graph, 0));
  FillParams values{a, 6, kWords};
  auto kernel = values.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&first, graph, nullptr, 0, &kernel));
  const auto memset = memset_params(b, 1, 1);
  NEED(cuGraphAddMemsetNode(&second, graph, &first, 1, &memset, context));
  char name[] = "/tmp/fargpu-dot-XXXXXX";
  const int file = mkstemp(name);
  close(file);
  for (const unsigned flags : {0u, unsigned{CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE}}) {
    SHOW(cuGraphDebugDotPrint(graph, name, flags));
    std::ifstream in(name);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    VALUE(text.find("digraph") != std::string::npos);
    VALUE(text.find("->") != std::string::npos);
    VALUE(text.find("fill") != std::string::npos);
  }
  unlink(name);
  SHOW(cuGraphDebugDotPrint(graph, nullptr, 0));
  SHOW(cuGraphDebugDotPrint(nullptr, "/dev/null", 0));
  NEED(cuGraphDestroy(graph));
}

// A graph that allocates and frees is moved into another one: a copy of it would be another memory.
void memory_inside() {
  std::printf("-- a child with memory\n");
  clear();
  CUgraph graph, child;
  CUgraphExec exec;
  CUgraphNode alloc, fill, copy, free_node, embedded, last, node;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  auto memory = memory_params(4096);
  NEED(cuGraphAddMemAllocNode(&alloc, child, nullptr, 0, &memory));
  FillParams values{memory.dptr, 31, kWords};
  auto kernel = values.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&fill, child, &alloc, 1, &kernel));
  const auto out = copy_params(a, memory.dptr, 4);
  NEED(cuGraphAddMemcpyNode(&copy, child, &fill, 1, &out, context));
  NEED(cuGraphAddMemFreeNode(&free_node, child, &copy, 1, memory.dptr));
  SHOW(cuGraphAddChildGraphNode(&embedded, graph, nullptr, 0, child));
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  SHOW(cuGraphAddNode(&embedded, graph, nullptr, nullptr, 0, &params));
  // What it is from now on.
  CUgraph inside;
  SHOW(cuGraphChildGraphNodeGetGraph(embedded, &inside));
  VALUE(inside == child);
  SHOW(cuGraphInstantiate(&exec, child, 0));
  SHOW(cuGraphDestroy(child));
  CUgraph third;
  NEED(cuGraphCreate(&third, 0));
  SHOW(cuGraphAddNode(&node, third, nullptr, nullptr, 0, &params));
  NEED(cuGraphDestroy(third));
  SHOW(cuGraphAddMemAllocNode(&node, child, nullptr, 0, &memory));
  const auto behind = copy_params(b, a, 4);
  NEED(cuGraphAddMemcpyNode(&last, graph, &embedded, 1, &behind, context));
  CUgraph clone;
  SHOW(cuGraphClone(&clone, graph));
  for (int i = 0; i < 2; ++i) {
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    for (int j = 0; j < 2; ++j) launch(exec);
    show_first("b", b);
    clear();
    NEED(cuGraphExecDestroy(exec));
  }
  SHOW(cuGraphDestroy(graph));

  std::printf("-- a child that leaves its memory, changed when it is executable\n");
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  memory = memory_params(4096);
  NEED(cuGraphAddMemAllocNode(&alloc, child, nullptr, 0, &memory));
  FillParams left{memory.dptr, 34, kWords};
  kernel = left.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&fill, child, &alloc, 1, &kernel));
  const CUDA_HOST_NODE_PARAMS host{note, reinterpret_cast<void*>(35)};
  NEED(cuGraphAddHostNode(&node, child, &fill, 1, &host));
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  SHOW(cuGraphAddNode(&embedded, graph, nullptr, nullptr, 0, &params));
  const auto kept = copy_params(b, memory.dptr, 4);
  NEED(cuGraphAddMemcpyNode(&last, graph, &embedded, 1, &kept, context));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("b", b);
  VALUE(last_call);
  SHOW(cuGraphLaunch(exec, stream));  // the memory is still there
  SHOW(cuMemFreeAsync(memory.dptr, stream));
  left.value = 36;
  SHOW(cuGraphExecKernelNodeSetParams(exec, fill, &kernel));
  const CUDA_HOST_NODE_PARAMS other_host{note, reinterpret_cast<void*>(37)};
  SHOW(cuGraphExecHostNodeSetParams(exec, node, &other_host));
  launch(exec);
  show_first("b", b);
  VALUE(last_call);
  SHOW(cuMemFreeAsync(memory.dptr, stream));
  SHOW(cuGraphNodeSetEnabled(exec, fill, 0));
  NEED(cuMemsetD32(b, 0, 1));
  launch(exec);
  SHOW(cuMemFreeAsync(memory.dptr, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));

  std::printf("-- a child without, moved\n");
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  const auto memset = memset_params(c, 32, 1);
  NEED(cuGraphAddMemsetNode(&fill, child, nullptr, 0, &memset, context));
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  SHOW(cuGraphAddNode(&embedded, graph, nullptr, nullptr, 0, &params));
  const auto later = memset_params(c, 33, 1);
  SHOW(cuGraphMemsetNodeSetParams(fill, &later));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  launch(exec);
  show_first("c", c);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

CUgraphNodeParams conditional_node(CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  params.conditional = {handle, type, 1, nullptr, context};
  return params;
}

// A condition inside of a loop; its handle is the inner graph's, or the outer one's.
void conditions_inside() {
  CUmodule module;
  CUfunction count_down;
  NEED(cuModuleLoadData(&module, kCountDown));
  NEED(cuModuleGetFunction(&count_down, module, "count_down"));
  for (const bool of_outer : {false, true}) {
    std::printf("-- a condition in a loop, its handle of the %s graph\n",
                of_outer ? "outer" : "inner");
    clear();
    CUgraph graph;
    CUgraphExec exec;
    CUgraphConditionalHandle turns, inside;
    CUgraphNode loop, condition, node;
    NEED(cuGraphCreate(&graph, 0));
    SHOW(cuGraphConditionalHandleCreate(&turns, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams params = conditional_node(turns, CU_GRAPH_COND_TYPE_WHILE);
    SHOW(cuGraphAddNode(&loop, graph, nullptr, nullptr, 0, &params));
    const CUgraph body = params.conditional.phGraph_out[0];
    void* pointers[] = {&a, &b, &turns};
    const auto counting = kernel_params(count_down, pointers, 1);
    SHOW(cuGraphAddKernelNode(&node, body, nullptr, 0, &counting));
    SHOW(cuGraphConditionalHandleCreate(&inside, of_outer ? graph : body, context, 1,
                                        CU_GRAPH_COND_ASSIGN_DEFAULT));
    params = conditional_node(inside, CU_GRAPH_COND_TYPE_IF);
    SHOW(cuGraphAddNode(&condition, body, &node, nullptr, 1, &params));
    const CUgraph innermost = params.conditional.phGraph_out[0];
    FillParams values{c, 41, kWords};
    const auto kernel = values.node(fill_kernel);
    SHOW(cuGraphAddKernelNode(&node, innermost, nullptr, 0, &kernel));
    SHOW(cuGraphAddNode(&node, body, nullptr, nullptr, 0, &params));  // its handle is in use
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuMemsetD32(a, 4, 1));
    NEED(cuCtxSynchronize());
    launch(exec);
    show_first("left", a);
    show_first("turns", b);
    show_first("c", c);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }
}

// A driver takes these, and refuses the graph when it is instantiated.
void not_run_in_bodies() {
  std::printf("-- what no body runs\n");
  CUgraph graph, child;
  CUgraphConditionalHandle handle;
  CUgraphNode node, in_child;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams params = conditional_node(handle, CU_GRAPH_COND_TYPE_IF);
  NEED(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  const CUgraph body = params.conditional.phGraph_out[0];
  const CUDA_HOST_NODE_PARAMS host{note, nullptr};
  SHOW(cuGraphAddHostNode(&node, body, nullptr, 0, &host));
  auto memory = memory_params(4096);
  SHOW(cuGraphAddMemAllocNode(&node, body, nullptr, 0, &memory));
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SHOW(cuGraphAddEventRecordNode(&node, body, nullptr, 0, event));
  NEED(cuGraphCreate(&child, 0));
  SHOW(cuGraphAddChildGraphNode(&node, body, nullptr, 0, child));
  NEED(cuGraphAddHostNode(&in_child, child, nullptr, 0, &host));
  SHOW(cuGraphAddChildGraphNode(&node, body, nullptr, 0, child));
  SHOW(cuGraphDestroy(body));
  NEED(cuGraphDestroy(child));
  // A graph with a condition is nobody's child.
  NEED(cuGraphCreate(&child, 0));
  params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph = {graph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  SHOW(cuGraphAddNode(&node, child, nullptr, nullptr, 0, &params));
  SHOW(cuGraphAddChildGraphNode(&node, child, nullptr, 0, graph));
  NEED(cuGraphDestroy(child));
  NEED(cuGraphDestroy(graph));
}

// A buffer with more than the kernel's parameters.
struct LongParameters {
  FillParams fill{a, 1, 1};
  size_t size = offsetof(FillParams, pointers) + 1;
  void* extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &fill, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                    CU_LAUNCH_PARAM_END};
  CUresult launch() {
    return cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra);
  }
};

void long_parameters() {
  std::printf("-- long parameters\n");
  LongParameters wrong;
  CUDA_KERNEL_NODE_PARAMS params = wrong.fill.node(fill_kernel);
  params.kernelParams = nullptr;
  params.extra = wrong.extra;
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  SHOW(wrong.launch());
  NEED(cuGraphDestroy(graph));
}

// A driver goes on capturing behind this wrong launch; others end the capture there, too.
void captured_long_parameters() {
  std::printf("-- long parameters of a captured launch\n");
  LongParameters wrong;
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(wrong.launch());
  SHOW(cuStreamEndCapture(stream, &graph));
}

}  // namespace

// With an argument: what a driver answers otherwise.
int main(int argc, char**) {
  set_up();
  if (argc > 1) {
    not_run_in_bodies();
    captured_long_parameters();
    return 0;
  }
  general_calls();
  fills();
  edges_with_data();
  instantiations();
  printed();
  memory_inside();
  conditions_inside();
  long_parameters();
  return 0;
}
