// Graphs that streams are captured into: what may be done with them meanwhile, and what is left of
// them; and the order of errors of calls about captures.
#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

CUstream other;

CUgraph new_graph() {
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  return graph;
}

CUresult begin_to(CUstream captured, CUgraph graph,
                  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
  return cuStreamBeginCaptureToGraph(captured, graph, nullptr, nullptr, 0, mode);
}

CUresult work(CUstream captured) { return cuMemsetD32Async(a, 1, kWords, captured); }

void show_status(CUstream captured) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  SHOW(cuStreamIsCapturing(captured, &status));
  VALUE(status);
}

void show_count(CUgraph graph) {
  size_t nodes = 99;
  SHOW(cuGraphGetNodes(graph, nullptr, &nodes));
  VALUE(nodes);
}

void end(CUstream captured) {
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(captured, &graph));
  if (graph != nullptr) show_count(graph);
}

void one_capture_at_a_time() {
  std::printf("-- one capture at a time\n");
  CUgraph graph = new_graph();
  SHOW(begin_to(stream, graph));
  SHOW(begin_to(other, graph));
  SHOW(begin_to(stream, graph));
  SHOW(work(stream));
  end(other);
  end(stream);
  std::printf("one behind the other\n");
  SHOW(begin_to(other, graph));
  CUgraphNode node;
  SHOW(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  SHOW(work(other));
  end(other);
  SHOW(cuGraphDestroy(graph));
  std::printf("the graph of a capture that made it\n");
  CUgraph own = nullptr;
  CUstreamCaptureStatus status;
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamGetCaptureInfo(stream, &status, nullptr, &own, nullptr, nullptr, nullptr));
  SHOW(begin_to(other, own));
  show_status(stream);
  SHOW(cuGraphDestroy(own));
  show_status(stream);
  end(stream);
}

void what_is_done_with_it() {
  std::printf("-- what is done with it\n");
  CUgraph graph = new_graph(), around = new_graph(), clone;
  CUgraphNode node, child;
  size_t count = 1;
  CUgraphExec exec;
  SHOW(begin_to(stream, graph));
  SHOW(work(stream));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphGetNodes(graph, &node, &count));
  SHOW(cuGraphDestroyNode(node));
  SHOW(cuGraphAddChildGraphNode(&child, around, nullptr, 0, graph));
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  show_status(stream);
  SHOW(work(stream));
  end(stream);
  show_count(clone);
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(around));
  SHOW(cuGraphDestroy(clone));
}

void what_is_left_of_it() {
  std::printf("-- what is left of it\n");
  CUgraph graph = new_graph();
  CUgraphNode node;
  CUdeviceptr p;
  SHOW(begin_to(stream, graph, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemAlloc(&p, 100));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  end(stream);
  show_count(graph);
  SHOW(cuGraphDestroy(graph));
  std::printf("of a stream that is destroyed\n");
  CUstream captured;
  NEED(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  graph = new_graph();
  SHOW(begin_to(captured, graph));
  SHOW(work(captured));
  SHOW(cuStreamDestroy(captured));
  show_count(graph);
  SHOW(begin_to(other, graph));
  SHOW(cuGraphDestroy(graph));
}

// Which of two errors comes first, and what ends a capture.
void order_of_errors() {
  std::printf("-- order of errors\n");
  CUdeviceptr p;
  CUstream blocking;
  NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 77));
  SHOW(cuStreamUpdateCaptureDependencies(nullptr, nullptr, nullptr, 0, 77));
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 77));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 1, 0));
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SHOW(cuEventRecord(event, stream));
  SHOW(cuMemAlloc(&p, 100));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 77));
  SHOW(cuStreamWaitEvent(other, event, CU_EVENT_WAIT_EXTERNAL));
  SHOW(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
  end(stream);
  std::printf("beside a stream for which the default one waits\n");
  const auto beside = [&](const char* text, CUstreamCaptureMode mode, auto&& call) {
    NEED(cuStreamBeginCapture(blocking, mode));
    show(text, call());
    show_status(blocking);
    end(blocking);
  };
  NEED(cuEventDestroy(event));
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    beside("allocation in order", mode, [&] { return cuMemAllocAsync(&p, 1000, nullptr); });
    beside("wait for an external event", mode,
           [&] { return cuStreamWaitEvent(nullptr, event, CU_EVENT_WAIT_EXTERNAL); });
    beside("dependencies", mode,
           [&] { return cuStreamUpdateCaptureDependencies(nullptr, nullptr, nullptr, 0, 0); });
    beside("dependencies, wrong flags", mode,
           [&] { return cuStreamUpdateCaptureDependencies(nullptr, nullptr, nullptr, 0, 77); });
    CUgraph graph = nullptr;
    beside("end", mode, [&] { return cuStreamEndCapture(nullptr, &graph); });
  }
}

}  // namespace

int main() {
  set_up();
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  one_capture_at_a_time();
  what_is_done_with_it();
  what_is_left_of_it();
  order_of_errors();
  return 0;
}
