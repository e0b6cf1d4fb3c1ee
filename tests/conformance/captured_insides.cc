// Captures into graphs that are inside of others, in a body of a condition or as a child that was
// moved, which come to nothing: their nodes are gone, and the graph around them goes on. A driver
// crashes at some of it.
#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

enum class Inside { kBody, kChild };
enum class End { kStreamDestroyed, kInvalidated };

// Records of what has gone are used again after so many.
void use_handles() {
  for (int i = 0; i < 9000; ++i) {
    CUevent event;
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventDestroy(event));
  }
}

void move_into(CUgraph around, CUgraph child) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  CUgraphNode node;
  SHOW(cuGraphAddNode(&node, around, nullptr, nullptr, 0, &params));
}

void capture_in(Inside inside, End end) {
  std::printf("-- in a %s, %s\n", inside == Inside::kBody ? "body" : "child",
              end == End::kInvalidated ? "invalidated" : "its stream is destroyed");
  CUgraph around, graph = nullptr;
  NEED(cuGraphCreate(&around, 0));
  if (inside == Inside::kBody)
    graph = Condition(around, CU_GRAPH_COND_TYPE_IF, 1).body;
  else
    NEED(cuGraphCreate(&graph, 0));
  CUstream captured;
  NEED(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamBeginCaptureToGraph(captured, graph, nullptr, nullptr, 0,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemsetD32Async(a, 5, kWords, captured));
  if (inside == Inside::kChild) move_into(around, graph);
  if (end == End::kInvalidated) {
    CUdeviceptr p;
    CUgraph ended;
    SHOW(cuMemAlloc(&p, 100));
    SHOW(cuStreamEndCapture(captured, &ended));
  } else {
    SHOW(cuStreamDestroy(captured));
  }
  use_handles();
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, around, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  NEED(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(around));
  use_handles();
}

}  // namespace

int main() {
  set_up();
  for (const Inside inside : {Inside::kBody, Inside::kChild})
    for (const End end : {End::kStreamDestroyed, End::kInvalidated}) capture_in(inside, end);
  return 0;
}
