// Host functions, children, events, memory operations, allocations and frees: what getters give
// after each way to make one, and what setters take of it; edges that captures make.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/graphs.h"
#include "tests/conformance/pointer_names.h"

namespace {

using namespace in_world;

CUevent first, second;
void CUDA_CB note(void* data) { ++*static_cast<int*>(data); }
void CUDA_CB other_note(void* data) { *static_cast<int*>(data) += 10; }
int counter;

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) NEED(cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

uint32_t first_of(CUdeviceptr p) {
  uint32_t got = 0;
  NEED(cuMemcpyDtoH(&got, p, 4));
  return got;
}

void show_node(CUgraphNode node);

void show_all(CUgraph graph) {
  const auto nodes = nodes_of(graph);
  std::printf("  %zu nodes\n", nodes.size());
  for (const CUgraphNode node : nodes) show_node(node);
}

void show_node(CUgraphNode node) {
  CUgraphNodeType type{};
  NEED(cuGraphNodeGetType(node, &type));
  size_t before = 0, after = 0;
  NEED(cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &before));
  NEED(cuGraphNodeGetDependentNodes_v2(node, nullptr, nullptr, &after));
  std::printf("  type %d, %zu before, %zu after\n", type, before, after);
  if (type == CU_GRAPH_NODE_TYPE_HOST) {
    CUDA_HOST_NODE_PARAMS host{};
    if (SHOW(cuGraphHostNodeGetParams(node, &host)) == CUDA_SUCCESS)
      std::printf("    %s %s\n", names.of(reinterpret_cast<void*>(host.fn)).c_str(),
                  names.of(host.userData).c_str());
    SHOW(cuGraphHostNodeSetParams(node, &host));
  } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr, again = nullptr;
    SHOW(cuGraphChildGraphNodeGetGraph(node, &child));
    SHOW(cuGraphChildGraphNodeGetGraph(node, &again));
    std::printf("    %s, the same %d\n", names.of(child).c_str(), child == again);
    show_all(child);
  } else if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    CUevent event = nullptr;
    SHOW(cuGraphEventRecordNodeGetEvent(node, &event));
    std::printf("    %s\n", names.of(event).c_str());
    SHOW(cuGraphEventRecordNodeSetEvent(node, event));
  } else if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
    CUevent event = nullptr;
    SHOW(cuGraphEventWaitNodeGetEvent(node, &event));
    std::printf("    %s\n", names.of(event).c_str());
    SHOW(cuGraphEventWaitNodeSetEvent(node, event));
  } else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
    CUDA_BATCH_MEM_OP_NODE_PARAMS p, again;
    std::memset(&p, 0x5a, sizeof p);
    if (SHOW(cuGraphBatchMemOpNodeGetParams(node, &p)) != CUDA_SUCCESS) return;
    NEED(cuGraphBatchMemOpNodeGetParams(node, &again));
    std::printf("    ctx %s, %u, flags %u, the same %d\n", names.of(p.ctx).c_str(), p.count,
                p.flags, p.paramArray == again.paramArray);
    for (unsigned i = 0; i < p.count; ++i) {
      const auto& op = p.paramArray[i];
      std::printf("    %d", op.operation);
      if (op.operation == CU_STREAM_MEM_OP_BARRIER) {
        std::printf(" flags %u\n", op.memoryBarrier.flags);
        continue;
      }
      std::printf(" %s %llu flags %u alias %s\n", names.of(op.writeValue.address).c_str(),
                  (unsigned long long)(op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
                                               op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64
                                           ? op.writeValue.value64
                                           : op.writeValue.value),
                  op.writeValue.flags, names.of(op.writeValue.alias).c_str());
    }
  } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    CUDA_MEM_ALLOC_NODE_PARAMS p, again;
    std::memset(&p, 0x5a, sizeof p);
    if (SHOW(cuGraphMemAllocNodeGetParams(node, &p)) != CUDA_SUCCESS) return;
    NEED(cuGraphMemAllocNodeGetParams(node, &again));
    const auto& pool = p.poolProps;
    std::printf(
        "    %zu bytes, address %s, descriptions %zu %s same %d; pool type %d handles %d location "
        "%d %d security %s size %zu usage %d\n",
        p.bytesize, names.of(p.dptr).c_str(), p.accessDescCount,
        p.accessDescs != nullptr ? "given" : "0", p.accessDescs == again.accessDescs,
        pool.allocType, pool.handleTypes, pool.location.type, pool.location.id,
        pool.win32SecurityAttributes != nullptr ? "given" : "0", pool.maxSize, pool.usage);
    for (size_t i = 0; i < p.accessDescCount && p.accessDescs != nullptr; ++i)
      std::printf("    access %d %d %d\n", p.accessDescs[i].location.type,
                  p.accessDescs[i].location.id, p.accessDescs[i].flags);
    bool clean = true;
    for (const unsigned char byte : pool.reserved) clean = clean && byte == 0;
    std::printf("    reserved clean %d\n", clean);
  } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    CUdeviceptr p = 0;
    SHOW(cuGraphMemFreeNodeGetParams(node, &p));
    std::printf("    %s\n", names.of(p).c_str());
  }
}

void show_everywhere(CUgraph graph) {
  show_all(graph);
  CUgraph clone = nullptr, outer, copy;
  CUgraphNode inner;
  std::printf(" clone\n");
  if (SHOW(cuGraphClone(&clone, graph)) == CUDA_SUCCESS) {
    show_all(clone);
    NEED(cuGraphDestroy(clone));
  }
  std::printf(" child\n");
  NEED(cuGraphCreate(&outer, 0));
  if (SHOW(cuGraphAddChildGraphNode(&inner, outer, nullptr, 0, graph)) == CUDA_SUCCESS) {
    NEED(cuGraphChildGraphNodeGetGraph(inner, &copy));
    show_all(copy);
  }
  NEED(cuGraphDestroy(outer));
}

void hosts() {
  std::printf("-- host functions\n");
  names.give(reinterpret_cast<void*>(note), "note");
  names.give(reinterpret_cast<void*>(other_note), "other note");
  names.give(&counter, "counter");
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  CUDA_HOST_NODE_PARAMS params{note, &counter};
  NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
  show_everywhere(graph);
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  NEED(cuGraphLaunch(exec, stream));
  NEED(cuStreamSynchronize(stream));
  std::printf("%d\n", counter);
  NEED(cuGraphHostNodeGetParams(node, &params));
  params.fn = other_note;
  SHOW(cuGraphExecHostNodeSetParams(exec, node, &params));
  NEED(cuGraphLaunch(exec, stream));
  NEED(cuStreamSynchronize(stream));
  std::printf("%d\n", counter);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  std::printf("- captured\n");
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuLaunchHostFunc(stream, note, &counter));
  SHOW(cuStreamAddCallback(
      stream, [](CUstream, CUresult, void*) {}, nullptr, 0));
  SHOW(cuStreamEndCapture(stream, &graph));
  if (graph != nullptr) {
    show_everywhere(graph);
    NEED(cuGraphDestroy(graph));
  }
}

void children() {
  std::printf("-- children\n");
  for (const int way : {0, 1, 2}) {
    std::printf("- way %d\n", way);
    CUgraph graph, child;
    CUgraphNode node, inner;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphCreate(&child, 0));
    CUDA_HOST_NODE_PARAMS params{note, &counter};
    NEED(cuGraphAddHostNode(&inner, child, nullptr, 0, &params));
    names.give(child, "the child" + std::to_string(way));
    CUgraphNodeParams all{};
    all.type = CU_GRAPH_NODE_TYPE_GRAPH;
    all.graph.graph = child;
    all.graph.ownership =
        way == 2 ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    if (way == 0) SHOW(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
    if (way != 0) SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &all));
    std::printf("    in the parameters: %s\n", names.of(all.graph.graph).c_str());
    show_all(graph);
    CUgraph got;
    NEED(cuGraphChildGraphNodeGetGraph(node, &got));
    CUgraphNode twin = nullptr;
    SHOW(cuGraphNodeFindInClone(&twin, inner, got));
    std::printf("    the same node %d\n", twin == inner);
    CUgraphExec exec;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, got));
    all.graph.graph = got;
    SHOW(cuGraphNodeSetParams(node, &all));
    // A node of the child is changed through what the getter gave.
    const CUgraphNode within = nodes_of(got)[0];
    params.fn = other_note;
    SHOW(cuGraphHostNodeSetParams(within, &params));
    SHOW(cuGraphExecHostNodeSetParams(exec, within, &params));
    counter = 0;
    NEED(cuGraphLaunch(exec, stream));
    NEED(cuStreamSynchronize(stream));
    std::printf("  %d\n", counter);
    SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, got));
    NEED(cuGraphLaunch(exec, stream));
    NEED(cuStreamSynchronize(stream));
    std::printf("  %d\n", counter);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    if (way != 2) NEED(cuGraphDestroy(child));
    names.forget(child);
    names.forget(got);
  }
}

void events() {
  std::printf("-- events\n");
  CUgraph graph;
  CUgraphNode record, wait;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, first));
  NEED(cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, second));
  show_everywhere(graph);
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
  SHOW(cuGraphExecEventWaitNodeSetEvent(exec, wait, first));
  show_all(graph);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  std::printf("- captured\n");
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuEventRecordWithFlags(first, stream, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(stream, second, CU_EVENT_WAIT_EXTERNAL));
  SHOW(cuEventRecord(second, stream));
  SHOW(cuStreamWaitEvent(stream, second, 0));
  SHOW(cuStreamEndCapture(stream, &graph));
  show_everywhere(graph);
  NEED(cuGraphDestroy(graph));
}

void operations() {
  std::printf("-- memory operations\n");
  CUstreamBatchMemOpParams op[4]{};
  op[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, a, {5}, 0, 0};
  op[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, a + 8, {}, 0, 0};
  op[1].writeValue.value64 = 0x100000002ull;
  op[2].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, a, {5}, CU_STREAM_WAIT_VALUE_GEQ, 0};
  op[3].memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEMORY_BARRIER_TYPE_GPU};
  for (const unsigned count : {3u}) {
    std::printf("- %u\n", count);
    CUgraph graph;
    CUgraphNode node;
    NEED(cuGraphCreate(&graph, 0));
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{context, count, op, 0};
    if (SHOW(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params)) == CUDA_SUCCESS) {
      show_everywhere(graph);
      CUgraphExec exec;
      NEED(cuGraphInstantiate(&exec, graph, 0));
      CUDA_BATCH_MEM_OP_NODE_PARAMS got;
      NEED(cuGraphBatchMemOpNodeGetParams(node, &got));
      // A driver reads memory that it has freed when a node is given its own array.
      CUstreamBatchMemOpParams own[3];
      std::copy_n(got.paramArray, 3, own);
      got.paramArray = own;
      own[0].writeValue.value = own[2].waitValue.value = 6;
      SHOW(cuGraphBatchMemOpNodeSetParams(node, &got));
      show_all(graph);
      SHOW(cuGraphExecBatchMemOpNodeSetParams(exec, node, &got));
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      std::printf("  %u\n", first_of(a));
      NEED(cuGraphExecDestroy(exec));
    }
    NEED(cuGraphDestroy(graph));
  }
  std::printf("- captured\n");
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamWriteValue32(stream, a, 1, 0));
  SHOW(cuStreamWriteValue64(stream, a + 8, 1, 0));
  SHOW(cuStreamWaitValue32(stream, a, 1, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuStreamWaitValue64(stream, a + 8, 1, CU_STREAM_WAIT_VALUE_EQ));
  SHOW(cuStreamBatchMemOp(stream, 2, op, 0));
  SHOW(cuStreamEndCapture(stream, &graph));
  if (graph == nullptr) return;
  show_everywhere(graph);
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void allocations() {
  std::printf("-- allocations\n");
  for (const int way : {0, 1, 2, 3}) {
    std::printf("- way %d\n", way);
    CUgraph graph = nullptr;
    CUgraphNode node, after;
    CUmemAccessDesc access[1]{};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUDA_MEM_ALLOC_NODE_PARAMS params = memory_params(100);
    if (way == 1) {
      params.accessDescs = access;
      params.accessDescCount = 1;
    }
    if (way < 2) {
      NEED(cuGraphCreate(&graph, 0));
      SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
      std::printf("  address %d, descriptions kept %d\n", params.dptr != 0,
                  params.accessDescs == (way == 1 ? access : nullptr));
      SHOW(cuGraphAddMemFreeNode(&after, graph, &node, 1, params.dptr));
    } else {
      CUdeviceptr p = 0;
      NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      if (way == 2) {
        SHOW(cuMemAllocAsync(&p, 100, stream));
      } else {
        CUmemoryPool pool;
        CUdevice device;
        NEED(cuCtxGetDevice(&device));
        NEED(cuDeviceGetMemPool(&pool, device));
        SHOW(cuMemAllocFromPoolAsync(&p, 1000, pool, stream));
      }
      SHOW(cuMemFreeAsync(p, stream));
      SHOW(cuStreamEndCapture(stream, &graph));
    }
    if (graph == nullptr) continue;
    show_everywhere(graph);
    const auto nodes = nodes_of(graph);
    CUgraphNodeParams all{};
    all.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    std::memcpy(&all.alloc, &params, sizeof params);
    SHOW(cuGraphNodeSetParams(nodes[0], &all));
    CUgraphExec exec;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphExecNodeSetParams(exec, nodes[0], &all));
    SHOW(cuGraphLaunch(exec, stream));
    SHOW(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }
}

void edges() {
  std::printf("-- edges of captures\n");
  CUstream other;
  CUevent fork, join;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  NEED(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  FillParams fill{a, 1, 32}, more{b, 2, 32};
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  NEED(cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, stream, fill.pointers, nullptr));
  NEED(cuEventRecord(fork, stream));
  NEED(cuStreamWaitEvent(other, fork, 0));
  NEED(cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, other, more.pointers, nullptr));
  NEED(cuMemcpyDtoDAsync(c, a, 16, stream));
  NEED(cuEventRecord(join, other));
  NEED(cuStreamWaitEvent(stream, join, 0));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr, seen = nullptr;
  const CUgraphNode* last = nullptr;
  const CUgraphEdgeData* data = nullptr;
  size_t count = 0;
  SHOW(cuStreamGetCaptureInfo_v3(stream, &status, &id, &seen, &last, &data, &count));
  std::printf("  %d, id %d, %zu, data %s\n", status, id != 0, count,
              data != nullptr ? "given" : "0");
  CUgraphNode added;
  CUDA_MEMSET_NODE_PARAMS set = memset_params(b + 64, 3, 4);
  SHOW(cuGraphAddMemsetNode(&added, seen, last, count, &set, context));
  SHOW(cuStreamUpdateCaptureDependencies(stream, &added, nullptr, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamGetCaptureInfo_v3(stream, &status, &id, &seen, &last, &data, &count));
  std::printf("  %zu, ours %d\n", count, count == 1 && last[0] == added);
  NEED(cuMemcpyDtoDAsync(c + 64, b + 64, 16, stream));
  SHOW(cuStreamEndCapture(stream, &graph));
  std::printf("  the graph that was told %d\n", graph == seen);
  auto nodes = nodes_of(graph);
  for (size_t i = 0; i < nodes.size(); ++i) names.give(nodes[i], "node" + std::to_string(i));
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    NEED(cuGraphNodeGetType(node, &type));
    CUgraphNode near[8]{};
    size_t n = 8;
    NEED(cuGraphNodeGetDependencies(node, near, nullptr, &n));
    std::printf("  %s type %d:", names.of(node).c_str(), type);
    for (size_t i = 0; i < n; ++i) std::printf(" %s", names.of(near[i]).c_str());
    std::printf("\n");
  }
  CUgraphNode from[16], to[16];
  size_t n = 16;
  SHOW(cuGraphGetEdges(graph, from, to, nullptr, &n));
  std::vector<std::string> lines;  // of no certain order
  for (size_t i = 0; i < n; ++i) lines.push_back(names.of(from[i]) + " -> " + names.of(to[i]));
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) std::printf("  %s\n", line.c_str());
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  set_up();
  NEED(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
  names.give(context, "context");
  names.give(first, "first");
  names.give(second, "second");
  names.give(a, "a");
  names.give(a + 8, "a+8");
  hosts();
  children();
  events();
  operations();
  allocations();
  edges();
  return 0;
}
