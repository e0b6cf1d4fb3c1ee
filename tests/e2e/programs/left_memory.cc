// left_memory HOW: graphs of 64 MiB, one after the other, that are destroyed; prints how many of 12
// there could be. HOW is what becomes of the memory: "left", or who frees it: "node" in the same
// graph, "before" the graph ends or "after" it, "other" graph.
#include <cstring>

#include "tests/e2e/programs/driver_check.h"

namespace {

int make_graph(CUgraph* graph, CUdeviceptr* memory, bool frees, bool* fits) {
  CUgraphNode node, end;
  CHECK(cuGraphCreate(graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 64u << 20;
  const CUresult result = cuGraphAddMemAllocNode(&node, *graph, nullptr, 0, &params);
  *fits = result != CUDA_ERROR_OUT_OF_MEMORY;
  if (!*fits) return 0;
  CHECK(result);
  *memory = params.dptr;
  if (frees) CHECK(cuGraphAddMemFreeNode(&end, *graph, &node, 1, params.dptr));
  return 0;
}

int launch(CUgraph graph, CUstream stream) {
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuGraphExecDestroy(exec));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto is = [&](const char* how) { return std::strcmp(argv[1], how) == 0; };
  CUcontext context;
  CUstream stream;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  int made = 0;
  for (; made < 12; ++made) {
    CUgraph graph, other;
    CUdeviceptr memory = 0;
    bool fits = true;
    if (make_graph(&graph, &memory, is("node"), &fits) != 0) return 1;
    if (!fits) break;
    if (launch(graph, stream) != 0) return 1;
    if (is("before")) CHECK(cuMemFreeAsync(memory, stream));
    if (is("other")) {
      CUgraphNode node;
      CHECK(cuGraphCreate(&other, 0));
      CHECK(cuGraphAddMemFreeNode(&node, other, nullptr, 0, memory));
      if (launch(other, stream) != 0) return 1;
      CHECK(cuGraphDestroy(other));
    }
    CHECK(cuGraphDestroy(graph));
    if (is("after")) CHECK(cuMemFree(memory));
  }
  std::printf("%d\n", made);
  return 0;
}
