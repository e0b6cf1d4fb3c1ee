// A host function reads and writes managed memory while the work of many streams stands behind it:
// kernels, copies in both directions, and graphs with lanes. A driver keeps such work in queues of
// the hardware that streams share, so that what the function needs must not have to pass them.
// sim: FARGPU_SIM_JITTER=300
// sim: CUDA_DEVICE_MAX_CONNECTIONS=32
#include <functional>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kStreams = 12, kLanes = 6;
constexpr size_t kBytes = 256 << 10, kCopied = 128 << 10;

struct Managed {
  int* words;
  int seen = 0;
};

void CUDA_CB read_and_write(void* data) {
  auto& memory = *static_cast<Managed*>(data);
  memory.seen = memory.words[0];
  for (size_t i = 0; i < kBytes / sizeof(int); i += 512) memory.words[i] = memory.seen + 1;
}

CUfunction load, increment;
CUstream working;
std::vector<CUstream> behind;

CUgraphExec graph_of_lanes(CUdeviceptr memory) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  for (int lane = 0; lane < kLanes; ++lane)
    add_kernel(graph, nullptr, 0, increment, memory + 4u * lane);
  return instantiate(graph);
}

// `put`: the work of the stream of this number.
void look(Managed* memory, const char* what, const std::function<void(int)>& put) {
  static CUdeviceptr read = device_memory(64);
  static const CUevent passed = make_event();
  step(what);
  int* const last = memory->words + kBytes / sizeof(int) - 512;
  for (int round = 0; round < 4; ++round) {
    CU(launch(increment, working, memory->words));
    CU(cuLaunchHostFunc(working, read_and_write, memory));
    CU(cuEventRecord(passed, working));
    for (int i = 0; i < kStreams; ++i) {
      CU(cuStreamWaitEvent(behind[i], passed, 0));
      put(i);
    }
    CU(launch(load, working, read, last));
    int result = 0;
    CU(cuMemcpyDtoHAsync(&result, read, sizeof result, working));
    CU(cuStreamSynchronize(working));
    if (result != memory->seen + 1)
      wrong("%s: a kernel read %d, not %d", what, result, memory->seen + 1);
    CU(cuCtxSynchronize());
  }
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule module = load_kernels();
  load = kernel_of(module, "load"), increment = kernel_of(module, "increment");
  working = make_stream();
  for (int i = 0; i < kStreams; ++i) behind.push_back(make_stream());
  CUdeviceptr managed;
  CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_HOST));
  CU(cuStreamAttachMemAsync(working, managed, 0, CU_MEM_ATTACH_SINGLE));
  CU(cuStreamSynchronize(working));
  Managed memory{reinterpret_cast<int*>(managed)};
  memory.words[0] = 1;
  const CUdeviceptr device = device_memory(kStreams * kCopied);
  CU(cuMemsetD8(device, 0, kStreams * kCopied));
  void* pinned;
  CU(cuMemAllocHost(&pinned, kStreams * kCopied));
  std::memset(pinned, 0, kStreams * kCopied);
  std::vector<CUgraphExec> graphs;
  for (int i = 0; i < kStreams; ++i) graphs.push_back(graph_of_lanes(device + i * kCopied));

  const auto host = [&](int i) { return static_cast<char*>(pinned) + i * kCopied; };
  look(&memory, "nothing", [](int) {});
  look(&memory, "kernels", [&](int i) { CU(launch(increment, behind[i], device + i * kCopied)); });
  look(&memory, "copies from pinned memory",
       [&](int i) { CU(cuMemcpyHtoDAsync(device + i * kCopied, host(i), kCopied, behind[i])); });
  look(&memory, "copies to the host",
       [&](int i) { CU(cuMemcpyDtoHAsync(host(i), device + i * kCopied, kCopied, behind[i])); });
  look(&memory, "graphs", [&](int i) { CU(cuGraphLaunch(graphs[i], behind[i])); });
  look(&memory, "graphs in one stream", [&](int i) {
    if (i < 6) CU(cuGraphLaunch(graphs[i], behind[0]));
  });
  right();
}
