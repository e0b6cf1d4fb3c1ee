// Captured launches that record events, or let others begin early: the edges that these become,
// what they join, and wrong ones.
#include <algorithm>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

CUevent new_event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent event;
  NEED(cuEventCreate(&event, flags));
  return event;
}

CUstream new_stream() {
  CUstream made;
  NEED(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

CUlaunchAttribute completion(CUevent event, int flags = 0) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent = {event, flags};
  return attribute;
}
CUlaunchAttribute programmatic(CUevent event, int at_block_start = 0, int flags = 0) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attribute.value.programmaticEvent = {event, flags, at_block_start};
  return attribute;
}
CUlaunchAttribute early() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

CUresult launch(CUstream in, uint32_t value, std::vector<CUlaunchAttribute> attributes = {}) {
  FillParams params{in == stream ? a : b, value, kWords};
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = in;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return cuLaunchKernelEx(&config, fill_kernel, params.pointers, nullptr);
}

void begin() { NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)); }

// What the next node of the stream depends on.
void show_place(CUstream of) {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUresult result =
      cuStreamGetCaptureInfo(of, &status, nullptr, nullptr, &nodes, &edges, &count);
  std::printf("  place: %s, status %d", error_name(result), static_cast<int>(status));
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type;
    NEED(cuGraphNodeGetType(nodes[i], &type));
    std::printf(", node %d port %d type %d", static_cast<int>(type), edges[i].from_port,
                edges[i].type);
  }
  std::printf("\n");
}

// Ends the capture, shows the edges in the order of nodes, and launches the graph.
void end() {
  CUgraph graph = nullptr;
  if (SHOW(cuStreamEndCapture(stream, &graph)) != CUDA_SUCCESS) return;
  size_t nodes = 16, edges = 16;
  CUgraphNode all[16], from[16], to[16];
  CUgraphEdgeData data[16];
  NEED(cuGraphGetNodes(graph, all, &nodes));
  NEED(cuGraphGetEdges(graph, from, to, data, &edges));
  const auto number = [&](CUgraphNode node) { return std::find(all, all + nodes, node) - all; };
  std::printf("  %zu nodes:", nodes);
  for (size_t i = 0; i < edges; ++i)
    std::printf(" %td>%td port %d type %d;", number(from[i]), number(to[i]), data[i].from_port,
                data[i].type);
  std::printf("\n");
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void join(CUstream other) {
  const CUevent event = new_event();
  SHOW(cuEventRecord(event, other));
  SHOW(cuStreamWaitEvent(stream, event, 0));
}

void recorded_by_a_launch() {
  const CUevent event = new_event();
  const struct {
    const char* name;
    CUlaunchAttribute attribute;
  } cases[] = {{"where it lets others begin", programmatic(event)},
               {"at its start", programmatic(event, 1)},
               {"when all blocks have begun", completion(event)}};
  for (const auto& one : cases) {
    std::printf("-- recorded by a launch %s\n", one.name);
    const CUstream other = new_stream();
    begin();
    SHOW(launch(stream, 1));
    SHOW(launch(stream, 2, {one.attribute}));
    show_place(stream);
    SHOW(cuStreamWaitEvent(stream, event, 0));
    show_place(stream);
    SHOW(cuStreamWaitEvent(other, event, 0));
    show_place(other);
    SHOW(launch(other, 3));
    show_place(other);
    SHOW(launch(stream, 4));
    join(other);
    show_place(stream);
    end();
    show_first("a", a);
    show_first("b", b);

    std::printf("other work behind it\n");
    begin();
    SHOW(launch(stream, 5, {one.attribute}));
    const CUstream fills = new_stream(), copies = new_stream(), records = new_stream();
    for (const CUstream each : {fills, copies, records}) SHOW(cuStreamWaitEvent(each, event, 0));
    SHOW(cuMemsetD32Async(c, 6, kWords, fills));
    SHOW(cuMemcpyDtoDAsync(c + 4, a, 4, copies));
    SHOW(cuEventRecordWithFlags(new_event(), records, CU_EVENT_RECORD_EXTERNAL));
    SHOW(launch(records, 7, {early()}));
    for (const CUstream each : {fills, copies, records}) join(each);
    end();

    std::printf("joined by it alone\n");
    for (const bool and_more : {false, true}) {
      const CUstream forked = new_stream();
      const CUevent fork = new_event();
      begin();
      SHOW(cuEventRecord(fork, stream));
      SHOW(cuStreamWaitEvent(forked, fork, 0));
      SHOW(launch(forked, 8, {one.attribute}));
      SHOW(cuStreamWaitEvent(stream, event, 0));
      show_place(stream);
      if (and_more) SHOW(launch(stream, 9));
      end();
    }

    std::printf("recorded, not captured\n");
    SHOW(launch(stream, 10, {one.attribute}));
    SHOW(cuStreamSynchronize(stream));
    SHOW(cuEventQuery(event));
    begin();
    SHOW(cuStreamWaitEvent(stream, event, 0));
    end();
  }
}

// Of several edges from one kernel the one that waits longest stays.
void several_edges() {
  std::printf("-- several edges\n");
  const CUevent at_point = new_event(), begun = new_event(), ended = new_event();
  const CUevent at_start = new_event();
  const CUevent orders[][3] = {{at_point, begun, ended},
                               {at_point, ended, begun},
                               {begun, at_point, ended},
                               {begun, ended, at_point},
                               {ended, at_point, begun}};
  for (const auto& order : orders) {
    const CUstream other = new_stream();
    begin();
    SHOW(launch(stream, 1, {programmatic(at_point), completion(begun)}));
    SHOW(cuEventRecord(ended, stream));
    for (const CUevent event : order) {
      SHOW(cuStreamWaitEvent(other, event, 0));
      show_place(other);
    }
    SHOW(launch(other, 2));
    join(other);
    end();
  }
  std::printf("from the start, in two ways\n");
  for (const bool programmatic_first : {false, true}) {
    const CUstream other = new_stream();
    begin();
    SHOW(launch(stream, 1, {programmatic(at_start, 1), completion(begun)}));
    SHOW(cuStreamWaitEvent(other, programmatic_first ? at_start : begun, 0));
    SHOW(cuStreamWaitEvent(other, programmatic_first ? begun : at_start, 0));
    SHOW(launch(other, 2));
    join(other);
    end();
  }
  std::printf("begun early behind two\n");
  const CUstream other = new_stream();
  begin();
  SHOW(launch(stream, 1, {completion(begun)}));
  SHOW(cuStreamWaitEvent(other, begun, 0));
  SHOW(launch(other, 2, {early()}));
  join(other);
  end();
}

void wrong_events() {
  std::printf("-- wrong events\n");
  const CUevent event = new_event(), timed = new_event(CU_EVENT_DEFAULT);
  for (const bool captured : {false, true}) {
    if (captured) begin();
    for (const int flags : {1, 2, 3}) {
      SHOW(launch(stream, 1, {programmatic(event, 0, flags)}));
      SHOW(launch(stream, 1, {completion(event, flags)}));
    }
    for (const CUevent wrong : {CUevent{}, timed}) {
      SHOW(launch(stream, 1, {programmatic(wrong)}));
      SHOW(launch(stream, 1, {completion(wrong)}));
    }
    CUstreamCaptureStatus status;
    SHOW(cuStreamIsCapturing(stream, &status));
    VALUE(status);
    if (captured) end();
  }
  SHOW(cuStreamSynchronize(stream));
}

}  // namespace

int main() {
  set_up();
  recorded_by_a_launch();
  several_edges();
  wrong_events();
  return 0;
}
