// Parameters of graphs' nodes that are changed before and after the graph is instantiated: what
// runs is what was set last.
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/conformance/conformance.h"

namespace {

CUdeviceptr words;
CUstream stream;
CUcontext context;

void run(CUgraphExec exec) {
  SHOW(cuGraphLaunch(exec, stream));
  NEED(cuStreamSynchronize(stream));
}

void run(CUgraph graph) {
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  NEED(cuGraphExecDestroy(exec));
}

void show_words() {
  unsigned out[2]{};
  NEED(cuMemcpyDtoH(out, words, sizeof out));
  std::printf("  words %u %u\n", out[0], out[1]);
  NEED(cuMemsetD32(words, 0, 2));
  NEED(cuCtxSynchronize());
}

void CUDA_CB add_one(void* number) { *static_cast<int*>(number) += 1; }
void CUDA_CB add_ten(void* number) { *static_cast<int*>(number) += 10; }

void host_nodes() {
  std::puts("host functions");
  int first = 0, second = 0;
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  CUDA_HOST_NODE_PARAMS params{add_one, &first}, read{};
  NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
  params = {add_ten, &second};
  SHOW(cuGraphHostNodeSetParams(node, &params));
  SHOW(cuGraphHostNodeGetParams(node, &read));
  VALUE(read.fn == add_ten && read.userData == &second);
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  VALUE(first);
  VALUE(second);
  params = {add_one, &first};
  SHOW(cuGraphExecHostNodeSetParams(exec, node, &params));
  run(exec);
  VALUE(first);
  VALUE(second);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void event_nodes() {
  std::puts("events");
  CUevent first, second, found = nullptr;
  NEED(cuEventCreate(&first, CU_EVENT_DEFAULT));
  NEED(cuEventCreate(&second, CU_EVENT_DEFAULT));
  CUgraph graph;
  CUgraphNode recording, waiting;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddEventRecordNode(&recording, graph, nullptr, 0, first));
  NEED(cuGraphAddEventWaitNode(&waiting, graph, &recording, 1, first));
  SHOW(cuGraphEventRecordNodeSetEvent(recording, second));
  SHOW(cuGraphEventRecordNodeGetEvent(recording, &found));
  VALUE(found == second);
  SHOW(cuGraphEventWaitNodeSetEvent(waiting, second));
  SHOW(cuGraphEventWaitNodeGetEvent(waiting, &found));
  VALUE(found == second);
  run(graph);
  // Only the event that is recorded has a time.
  NEED(cuEventRecord(first, stream));
  NEED(cuStreamSynchronize(stream));
  float time = -1;
  SHOW(cuEventElapsedTime(&time, second, first));
  VALUE(time >= 0);
  NEED(cuGraphDestroy(graph));
}

CUstreamBatchMemOpParams writing(unsigned index, unsigned value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = words + index * sizeof value;
  operation.writeValue.value = value;
  return operation;
}

void batch_nodes() {
  std::puts("batches of memory operations");
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams operations[] = {writing(0, 3), writing(1, 4)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{context, 1, operations, 0}, read{};
  SHOW(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  run(graph);
  show_words();
  params.count = 2;
  operations[0] = writing(0, 5);
  SHOW(cuGraphBatchMemOpNodeSetParams(node, &params));
  SHOW(cuGraphBatchMemOpNodeGetParams(node, &read));
  VALUE(read.count);
  VALUE(read.paramArray[0].writeValue.value);
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  show_words();
  operations[1] = writing(1, 6);
  SHOW(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  run(exec);
  show_words();
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

CUgraph graph_that_sets(unsigned value) {
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  const CUDA_MEMSET_NODE_PARAMS params{words, 0, value, sizeof value, 2, 1};
  NEED(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, context));
  return graph;
}

void child_graphs() {
  std::puts("child graphs");
  CUgraph graph, first = graph_that_sets(7), second = graph_that_sets(8);
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, first));
  CUgraphExec exec = nullptr;
  NEED(cuGraphInstantiate(&exec, graph, 0));
  run(exec);
  show_words();
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, second));
  run(exec);
  show_words();
  const std::string file = "/tmp/fargpu-node-settings-" + std::to_string(getpid()) + ".dot";
  SHOW(cuGraphDebugDotPrint(graph, file.c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
  std::string line;
  std::getline(std::ifstream(file), line);
  VALUE(line.starts_with("digraph"));
  unlink(file.c_str());
  NEED(cuGraphExecDestroy(exec));
  for (const CUgraph made : {graph, first, second}) NEED(cuGraphDestroy(made));
}

}  // namespace

int main() {
  make_context();
  NEED(cuCtxGetCurrent(&context));
  NEED(cuMemAlloc(&words, 2 * sizeof(unsigned)));
  NEED(cuMemsetD32(words, 0, 2));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuCtxSynchronize());
  host_nodes();
  event_nodes();
  batch_nodes();
  child_graphs();
  return 0;
}
