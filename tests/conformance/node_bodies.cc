// Bodies of conditions take nodes of every kind, added or captured, memory among them; a graph with
// one that no body runs is not instantiated.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

void CUDA_CB note(void* data) { ++*static_cast<int*>(data); }
int counter;
CUevent event;
uint32_t pageable[64];
uint32_t* pinned;

uint32_t first_of(CUdeviceptr p) {
  uint32_t got = 0;
  NEED(cuMemcpyDtoH(&got, p, 4));
  return got;
}

void types_of(CUgraph graph) {
  CUgraphNode nodes[16];
  size_t n = 16;
  if (cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS) return;
  std::printf("  body:");
  for (size_t i = 0; i < n; ++i) {
    CUgraphNodeType type{};
    NEED(cuGraphNodeGetType(nodes[i], &type));
    std::printf(" %d", type);
  }
  std::printf("\n");
}

void finish(CUgraph graph, CUgraph body) {
  types_of(body);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  show("  instantiate", cuGraphInstantiateWithParams(&exec, graph, &how));
  std::printf("  result %d, node %d\n", how.result_out, how.hErrNode_out != nullptr);
  if (exec != nullptr) {
    for (int i = 0; i < 2; ++i) {
      show("  launch", cuGraphLaunch(exec, stream));
      show("  wait", cuStreamSynchronize(stream));
    }
    std::printf("  a %x, counter %d\n", first_of(a), counter);
    show("  destroy", cuGraphExecDestroy(exec));
  }
  show("  destroy graph", cuGraphDestroy(graph));
}

void reset() {
  counter = 0;
  NEED(cuMemsetD32(a, 0x1a, kWords));
  NEED(cuCtxSynchronize());
}

void captured(const char* text, const std::function<void()>& calls) {
  for (const CUgraphConditionalNodeType type : {CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_WHILE}) {
    std::printf("-- captured, type %d: %s\n", type, text);
    reset();
    CUgraph graph, out = nullptr;
    NEED(cuGraphCreate(&graph, 0));
    Condition condition(graph, type, type == CU_GRAPH_COND_TYPE_IF ? 1 : 0);
    NEED(cuStreamBeginCaptureToGraph(stream, condition.body, nullptr, nullptr, 0,
                                     CU_STREAM_CAPTURE_MODE_RELAXED));
    calls();
    CUstreamCaptureStatus status;
    show("  status", cuStreamIsCapturing(stream, &status));
    std::printf("  %d\n", status);
    show("  end", cuStreamEndCapture(stream, &out));
    std::printf("  the body %d\n", out == condition.body);
    finish(graph, condition.body);
  }
}

void added(const char* text, const std::function<CUresult(CUgraph)>& add) {
  std::printf("-- added: %s\n", text);
  reset();
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  Condition condition(graph, CU_GRAPH_COND_TYPE_IF, 1);
  show("  add", add(condition.body));
  finish(graph, condition.body);
}

void captures() {
  captured("allocated", [] {
    CUdeviceptr p = 0;
    SHOW(cuMemAllocAsync(&p, 40, stream));
    std::printf("  %d\n", p != 0);
  });
  captured("allocated, used and freed", [] {
    CUdeviceptr p = 0;
    if (SHOW(cuMemAllocAsync(&p, 256, stream)) != CUDA_SUCCESS) return;
    SHOW(cuMemsetD32Async(p, 0x77, 4, stream));
    SHOW(cuMemcpyDtoDAsync(a, p, 16, stream));
    SHOW(cuMemFreeAsync(p, stream));
  });
  captured("freed", [] {
    CUdeviceptr p = 0;
    NEED(cuMemAllocAsync(&p, 256, nullptr));
    NEED(cuStreamSynchronize(nullptr));
    SHOW(cuMemFreeAsync(p, stream));
  });
  captured("a kernel", [] {
    FillParams fill{a, 5, 32};
    SHOW(cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, stream, fill.pointers, nullptr));
  });
  captured("a host function", [] { SHOW(cuLaunchHostFunc(stream, note, &counter)); });
  captured("a pageable copy", [] { SHOW(cuMemcpyHtoDAsync(a, pageable, 16, stream)); });
  captured("a copy to pageable", [] { SHOW(cuMemcpyDtoHAsync(pageable, a, 16, stream)); });
  captured("a pinned copy", [] { SHOW(cuMemcpyHtoDAsync(a, pinned, 16, stream)); });
  captured("a device copy", [] { SHOW(cuMemcpyDtoDAsync(a, b, 16, stream)); });
  captured("a memset", [] { SHOW(cuMemsetD32Async(a, 9, 4, stream)); });
  captured("an event",
           [] { SHOW(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL)); });
  captured("a wait for an event",
           [] { SHOW(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL)); });
  captured("a memory operation", [] { SHOW(cuStreamWriteValue32(stream, a, 1, 0)); });
}

void adds() {
  CUgraphNode node;
  added("a host function", [&](CUgraph body) {
    CUDA_HOST_NODE_PARAMS params{note, &counter};
    return cuGraphAddHostNode(&node, body, nullptr, 0, &params);
  });
  added("an event",
        [&](CUgraph body) { return cuGraphAddEventRecordNode(&node, body, nullptr, 0, event); });
  added("a wait for an event",
        [&](CUgraph body) { return cuGraphAddEventWaitNode(&node, body, nullptr, 0, event); });
  added("a memory operation", [&](CUgraph body) {
    CUstreamBatchMemOpParams op{};
    op.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, a, {5}, 0, 0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{context, 1, &op, 0};
    return cuGraphAddBatchMemOpNode(&node, body, nullptr, 0, &params);
  });
  added("a memset", [&](CUgraph body) {
    CUDA_MEMSET_NODE_PARAMS params = memset_params(a, 3, 4);
    return cuGraphAddMemsetNode(&node, body, nullptr, 0, &params, context);
  });
  added("a pageable copy", [&](CUgraph body) {
    const CUDA_MEMCPY3D params = copy_params(pageable, a, 16);
    return cuGraphAddMemcpyNode(&node, body, nullptr, 0, &params, context);
  });
  added("a pinned copy", [&](CUgraph body) {
    const CUDA_MEMCPY3D params = copy_params(pinned, a, 16);
    return cuGraphAddMemcpyNode(&node, body, nullptr, 0, &params, context);
  });
  added("an empty node",
        [&](CUgraph body) { return cuGraphAddEmptyNode(&node, body, nullptr, 0); });
  added("memory", [&](CUgraph body) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = memory_params(100);
    return cuGraphAddMemAllocNode(&node, body, nullptr, 0, &params);
  });
  added("memory, used and freed", [&](CUgraph body) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = memory_params(100);
    CUgraphNode used, copied, freed;
    if (const CUresult r = cuGraphAddMemAllocNode(&node, body, nullptr, 0, &params)) return r;
    CUDA_MEMSET_NODE_PARAMS set = memset_params(params.dptr, 0x33, 4);
    if (const CUresult r = cuGraphAddMemsetNode(&used, body, &node, 1, &set, context)) return r;
    const CUDA_MEMCPY3D copy = copy_params(a, params.dptr, 16);
    if (const CUresult r = cuGraphAddMemcpyNode(&copied, body, &used, 1, &copy, context)) return r;
    return cuGraphAddMemFreeNode(&freed, body, &copied, 1, params.dptr);
  });
  added("a child", [&](CUgraph body) {
    CUgraph child;
    CUgraphNode inner;
    NEED(cuGraphCreate(&child, 0));
    CUDA_MEMSET_NODE_PARAMS params = memset_params(a, 3, 4);
    NEED(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &params, context));
    const CUresult result = cuGraphAddChildGraphNode(&node, body, nullptr, 0, child);
    NEED(cuGraphDestroy(child));
    return result;
  });
  added("a child with a host function", [&](CUgraph body) {
    CUgraph child;
    CUgraphNode inner;
    NEED(cuGraphCreate(&child, 0));
    CUDA_HOST_NODE_PARAMS params{note, &counter};
    NEED(cuGraphAddHostNode(&inner, child, nullptr, 0, &params));
    const CUresult result = cuGraphAddChildGraphNode(&node, body, nullptr, 0, child);
    NEED(cuGraphDestroy(child));
    return result;
  });
}

// Memory of the graph around a condition that a body frees, and the other way round.
void memory_across() {
  std::printf("-- memory across\n");
  reset();
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  Condition condition(graph, CU_GRAPH_COND_TYPE_IF, 1);
  CUgraphNode node, in_body;
  CUDA_MEM_ALLOC_NODE_PARAMS params = memory_params(100);
  SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  SHOW(cuGraphAddDependencies_v2(graph, &node, &condition.node, nullptr, 1));
  CUDA_MEMSET_NODE_PARAMS set = memset_params(params.dptr, 0x44, 4);
  CUgraphNode used, copied, freed;
  SHOW(cuGraphAddMemsetNode(&used, condition.body, nullptr, 0, &set, context));
  const CUDA_MEMCPY3D copy = copy_params(a, params.dptr, 16);
  SHOW(cuGraphAddMemcpyNode(&copied, graph, &condition.node, 1, &copy, context));
  SHOW(cuGraphAddMemFreeNode(&in_body, condition.body, &used, 1, params.dptr));
  SHOW(cuGraphAddMemFreeNode(&freed, graph, &copied, 1, params.dptr));
  finish(graph, condition.body);

  std::printf("-- a body's memory freed outside\n");
  NEED(cuGraphCreate(&graph, 0));
  Condition other(graph, CU_GRAPH_COND_TYPE_IF, 1);
  params = memory_params(100);
  SHOW(cuGraphAddMemAllocNode(&node, other.body, nullptr, 0, &params));
  SHOW(cuGraphAddMemFreeNode(&freed, graph, &other.node, 1, params.dptr));
  finish(graph, other.body);
}

void clones() {
  std::printf("-- a graph with a condition whose body allocates: clone, child, update, twice\n");
  reset();
  CUgraph graph, clone = nullptr, outer;
  CUgraphNode node, freed;
  NEED(cuGraphCreate(&graph, 0));
  Condition condition(graph, CU_GRAPH_COND_TYPE_IF, 1);
  CUDA_MEM_ALLOC_NODE_PARAMS params = memory_params(100);
  SHOW(cuGraphAddMemAllocNode(&node, condition.body, nullptr, 0, &params));
  SHOW(cuGraphAddMemFreeNode(&freed, condition.body, &node, 1, params.dptr));
  SHOW(cuGraphClone(&clone, graph));
  NEED(cuGraphCreate(&outer, 0));
  SHOW(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
  CUgraphExec exec = nullptr, twice = nullptr;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphInstantiate(&twice, graph, 0));
  CUgraphExecUpdateResultInfo info{};
  if (exec != nullptr) SHOW(cuGraphExecUpdate(exec, graph, &info));
  std::printf("  %d\n", info.result);
  if (exec != nullptr) SHOW(cuGraphExecDestroy(exec));
  exec = nullptr;
  SHOW(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  if (exec != nullptr) SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroyNode(freed));
  SHOW(cuGraphDestroyNode(condition.node));
  SHOW(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  set_up();
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  NEED(cuMemAllocHost(reinterpret_cast<void**>(&pinned), 4096));
  captures();
  adds();
  memory_across();
  clones();
  return 0;
}
