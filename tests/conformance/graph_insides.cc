// Graphs inside of graphs that are copied, replaced, captured into and ended; user objects of which
// more references are given up than there are.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/graphs.h"

namespace {

CUcontext context;
CUstream stream;
CUdeviceptr a;

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params{};
  params.type = type;
  return params;
}

CUgraphNodeParams child_node(CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph = {child, ownership};
  return params;
}

// The body of a new condition in `graph`.
CUgraph add_condition(CUgraph graph, CUgraphNode* node) {
  CUgraphConditionalHandle handle;
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  params.conditional = {handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, context};
  NEED(cuGraphAddNode(node, graph, nullptr, nullptr, 0, &params));
  return params.conditional.phGraph_out[0];
}

void CUDA_CB note(void*) {}

void copies_of_bodies() {
  std::printf("-- copies of bodies\n");
  CUgraph graph, copy, other, child;
  CUgraphNode node, inside, embedded;
  CUgraphExec exec;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&other, 0));
  const CUgraph body = add_condition(graph, &node);
  const auto memset = memset_params(a, 1, 1);
  NEED(cuGraphAddMemsetNode(&inside, body, nullptr, 0, &memset, context));
  SHOW(cuGraphClone(&copy, body));
  add_condition(body, &inside);
  SHOW(cuGraphClone(&copy, body));
  VALUE(cuGraphAddChildGraphNode(&embedded, other, nullptr, 0, body) != CUDA_SUCCESS);
  NEED(cuGraphCreate(&child, 0));
  SHOW(cuGraphAddChildGraphNode(&embedded, other, nullptr, 0, child));
  SHOW(cuGraphInstantiate(&exec, other, 0));
  VALUE(cuGraphExecChildGraphNodeSetParams(exec, embedded, body) != CUDA_SUCCESS);
  CUgraphNodeParams params = child_node(body, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  VALUE(cuGraphNodeSetParams(embedded, &params) != CUDA_SUCCESS);
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(child));
  NEED(cuGraphDestroy(other));
  NEED(cuGraphDestroy(graph));
}

void ancestors() {
  std::printf("-- a graph inside of itself\n");
  CUgraph graph, child, inner;
  CUgraphNode node, embedded;
  CUgraphExec exec;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  const auto memset = memset_params(a, 2, 1);
  NEED(cuGraphAddMemsetNode(&node, child, nullptr, 0, &memset, context));
  NEED(cuGraphAddChildGraphNode(&embedded, graph, nullptr, 0, child));
  NEED(cuGraphChildGraphNodeGetGraph(embedded, &inner));
  SHOW(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, graph));
  SHOW(cuGraphAddChildGraphNode(&node, inner, nullptr, 0, graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(child));
  NEED(cuGraphDestroy(graph));
}

CUgraph graph_with_memory() {
  CUgraph graph;
  CUgraphNode alloc, fill, node;
  NEED(cuGraphCreate(&graph, 0));
  auto memory = memory_params(4096);
  NEED(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &memory));
  const auto memset = memset_params(memory.dptr, 3, 1);
  NEED(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &memset, context));
  NEED(cuGraphAddMemFreeNode(&node, graph, &fill, 1, memory.dptr));
  return graph;
}

void never_instantiated() {
  std::printf("-- never instantiated\n");
  CUgraph graph;
  CUgraphNode node;
  for (int i = 0; i < 3; ++i) {
    NEED(cuGraphCreate(&graph, 0));
    CUgraphNodeParams params = child_node(graph_with_memory(), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    SHOW(cuGraphDestroy(graph));
    SHOW(cuCtxSynchronize());
    SHOW(cuStreamSynchronize(stream));
  }
  std::printf("another child\n");
  CUgraph child;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  CUgraphNodeParams params = child_node(graph_with_memory(), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
  SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  params = child_node(child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
  SHOW(cuGraphNodeSetParams(node, &params));
  SHOW(cuGraphDestroy(graph));
  NEED(cuGraphDestroy(child));
  SHOW(cuCtxSynchronize());
}

// Nodes that a body cannot hold: a driver refuses them when the graph is instantiated.
void into_bodies() {
  std::printf("-- into bodies\n");
  CUgraph graph, ended;
  CUgraphNode node;
  CUgraphExec exec;
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (const int what : {0, 1, 2, 3, 4}) {
    std::printf("captured %d\n", what);
    NEED(cuGraphCreate(&graph, 0));
    const CUgraph body = add_condition(graph, &node);
    SHOW(cuStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUdeviceptr p = 0;
    if (what == 0) SHOW(cuLaunchHostFunc(stream, note, nullptr));
    if (what == 1) SHOW(cuMemsetD32Async(a, 7, 1, stream));
    if (what == 2) SHOW(cuMemAllocAsync(&p, 4096, stream));
    if (what == 3) SHOW(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    if (what == 4) SHOW(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    SHOW(cuStreamEndCapture(stream, &ended));
    if (what == 1) {
      SHOW(cuGraphInstantiate(&exec, graph, 0));
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      show_first("a", a);
      NEED(cuGraphExecDestroy(exec));
    }
    NEED(cuGraphDestroy(graph));
  }
  NEED(cuEventDestroy(event));
}

std::atomic<int> destroyed;
void CUDA_CB count(void*) { ++destroyed; }
void show_destroyed() {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  VALUE(destroyed.load());
}

void user_objects() {
  std::printf("-- user objects of a new child\n");
  CUuserObject object;
  CUgraph graph, first, second;
  CUgraphNode node, embedded;
  CUgraphExec exec;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&first, 0));
  NEED(cuGraphCreate(&second, 0));
  auto memset = memset_params(a, 4, 1);
  NEED(cuGraphAddMemsetNode(&node, first, nullptr, 0, &memset, context));
  memset.value = 5;
  NEED(cuGraphAddMemsetNode(&node, second, nullptr, 0, &memset, context));
  NEED(cuGraphAddChildGraphNode(&embedded, graph, nullptr, 0, first));
  NEED(cuGraphInstantiate(&exec, graph, 0));
  destroyed = 0;
  NEED(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  NEED(cuGraphRetainUserObject(second, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, embedded, second));
  NEED(cuGraphDestroy(second));
  show_destroyed();
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  NEED(cuGraphExecDestroy(exec));
  show_destroyed();
  NEED(cuGraphDestroy(first));
  NEED(cuGraphDestroy(graph));
}

// An application gives up the references of a graph, too.
void references_of_others() {
  std::printf("-- more references than there are\n");
  CUuserObject object;
  CUgraph graph;
  CUgraphExec exec;
  destroyed = 0;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  NEED(cuGraphRetainUserObject(graph, object, 1, 0));
  SHOW(cuUserObjectRelease(object, 5));
  show_destroyed();
  for (int i = 0; i < 5000; ++i) {
    CUgraph other;
    NEED(cuGraphCreate(&other, 0));
    NEED(cuGraphDestroy(other));
  }
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphExecDestroy(exec));
  show_destroyed();
  SHOW(cuGraphDestroy(graph));
  show_destroyed();
}

// Other threads use an executable graph that is destroyed: each call works or does not.
void used_while_destroyed() {
  std::printf("-- used while it is destroyed\n");
  constexpr int kRounds = 200;
  destroyed = 0;
  for (int i = 0; i < kRounds; ++i) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUuserObject object;
    NEED(cuGraphCreate(&graph, 0));
    const CUDA_HOST_NODE_PARAMS host{note, nullptr};
    NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
    NEED(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NEED(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    std::atomic<int> ready{0};
    const auto begin = [&] {
      ++ready;
      while (ready < 3) std::this_thread::yield();
    };
    std::thread launches([&] {
      NEED(cuCtxSetCurrent(context));
      begin();
      for (int j = 0; j < 3; ++j) (void)cuGraphLaunch(exec, stream);
    });
    std::thread updates([&] {
      NEED(cuCtxSetCurrent(context));
      begin();
      CUgraphExecUpdateResultInfo info;
      (void)cuGraphExecUpdate(exec, graph, &info);
    });
    begin();
    std::this_thread::sleep_for(std::chrono::microseconds(i));
    NEED(cuGraphExecDestroy(exec));
    launches.join();
    updates.join();
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphDestroy(graph));
  }
  for (int i = 0; i < 500 && destroyed != kRounds; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  VALUE(destroyed.load());
}

}  // namespace

// With an argument: what no program may do.
int main(int argc, char**) {
  const World world;
  context = world.context;
  stream = world.stream;
  a = world.a;
  if (argc > 1) {
    ancestors();
    references_of_others();
    used_while_destroyed();
    return 0;
  }
  copies_of_bodies();
  never_instantiated();
  into_bodies();
  user_objects();
  return 0;
}
