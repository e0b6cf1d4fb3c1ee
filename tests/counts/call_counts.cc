// Calls of each class, for callgrind: it starts without counting, and each class is counted by
// itself and dumped under its name, several times. In all rounds but the first the client has what
// it makes once. Nothing that a round leaves behind fills a ring or a queue.
#include <cuda.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kRounds = 12, kCalls = 100;
constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry empty(.param .u64 a, .param .u32 b)\n{\n  ret;\n}\n";

void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define NEED(call) need(call, #call)

template <typename Call>
void count(const char* name, Call&& call) {
  for (int round = 0; round < kRounds; ++round) {
    CALLGRIND_ZERO_STATS;
    CALLGRIND_TOGGLE_COLLECT;
    for (int i = 0; i < kCalls; ++i) call();
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(name);
    NEED(cuCtxSynchronize());
  }
}

}  // namespace

int main() {
  NEED(cuInit(0));
  CUcontext context = nullptr;
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  NEED(cuModuleLoadData(&module, kEmptyKernel));
  NEED(cuModuleGetFunction(&kernel, module, "empty"));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr memory = 0;
  NEED(cuMemAlloc(&memory, 1 << 20));
  void* pinned = nullptr;
  NEED(cuMemAllocHost(&pinned, 1 << 20));
  static char pageable[256];
  CUdeviceptr a = memory;
  unsigned b = 1;
  void* parameters[] = {&a, &b};
  const auto launch = [&] {
    NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  };
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUgraphNode node = nullptr;
  size_t nodes = 1;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch();
  NEED(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphInstantiate(&executable, graph, 0));
  NEED(cuGraphGetNodes(graph, &node, &nodes));
  CUDA_KERNEL_NODE_PARAMS changed{};
  changed.func = kernel;
  changed.gridDimX = changed.gridDimY = changed.gridDimZ = 1;
  changed.blockDimX = changed.blockDimY = changed.blockDimZ = 1;
  changed.kernelParams = parameters;

  count("call_local", [] {
    int least = 0, greatest = 0;
    NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
  });
  count("call_sync", [&] { (void)cuStreamQuery(stream); });
  count("call_async", [&] { NEED(cuMemsetD32Async(memory, 0, 64, stream)); });
  count("launch", launch);
  count("launch_synchronize", [&] {
    launch();
    NEED(cuStreamSynchronize(stream));
  });
  count("event_record", [&] { NEED(cuEventRecord(event, stream)); });
  count("event_record_synchronize", [&] {
    NEED(cuEventRecord(event, stream));
    NEED(cuEventSynchronize(event));
  });
  count("graph_launch", [&] { NEED(cuGraphLaunch(executable, stream)); });
  count("graph_kernel_change",
        [&] { NEED(cuGraphExecKernelNodeSetParams(executable, node, &changed)); });
  count("host_to_device_pinned", [&] { NEED(cuMemcpyHtoDAsync(memory, pinned, 4096, stream)); });
  count("host_to_device_pageable",
        [&] { NEED(cuMemcpyHtoDAsync(memory, pageable, sizeof pageable, stream)); });
  count("device_to_host_pageable", [&] { NEED(cuMemcpyDtoH(pageable, memory, 4)); });
  return 0;
}
