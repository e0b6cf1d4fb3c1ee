// Hundreds of host functions with device work between them, in several streams that wait for each
// other, and graphs with host nodes among them: a driver's queues take some dozen of them, and then
// its calls wait. The program waits for nothing until it has submitted everything.
#include <array>
#include <atomic>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kStreams = 6, kRounds = 120, kWords = 500;

struct Lane {
  CUstream stream;
  CUdeviceptr memory;
  unsigned *source, *result;  // what host functions fill and check
  unsigned filled = 0, checked = 0, wrong = 0;
};

unsigned value(unsigned round, unsigned i) { return round * 1000 + i; }

void CUDA_CB fill(void* given) {
  Lane& lane = *static_cast<Lane*>(given);
  ++lane.filled;
  for (unsigned i = 0; i < kWords; ++i) lane.source[i] = value(lane.filled, i);
}

void CUDA_CB check(void* given) {
  Lane& lane = *static_cast<Lane*>(given);
  ++lane.checked;
  for (unsigned i = 0; i < kWords; ++i)
    lane.wrong += lane.result[i] == value(lane.checked, i) * 2 + 1 ? 0 : 1;
}

void CUDA_CB callback(CUstream, CUresult result, void* given) {
  Lane& lane = *static_cast<Lane*>(given);
  lane.wrong += result == CUDA_SUCCESS ? 0 : 1;
  check(given);
}

// A round of a lane: fill, copy, kernel, copy, check.
void submit(Lane& lane, CUfunction scale, bool by_callback) {
  CU(cuLaunchHostFunc(lane.stream, fill, &lane));
  CU(cuMemcpyHtoDAsync(lane.memory, lane.source, kWords * sizeof(unsigned), lane.stream));
  unsigned words = kWords, factor = 2, add = 1;
  void* values[] = {&lane.memory, &lane.memory, &words, &factor, &add};
  CU(cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, lane.stream, values, nullptr));
  CU(cuMemcpyDtoHAsync(lane.result, lane.memory, kWords * sizeof(unsigned), lane.stream));
  if (by_callback)
    CU(cuStreamAddCallback(lane.stream, callback, &lane, 0));
  else
    CU(cuLaunchHostFunc(lane.stream, check, &lane));
}

CUgraphExec as_graph(Lane& lane, CUfunction scale) {
  CUgraph graph;
  CU(cuStreamBeginCapture(lane.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  submit(lane, scale, false);
  CU(cuStreamEndCapture(lane.stream, &graph));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  std::array<Lane, kStreams> lanes{};
  std::array<CUgraphExec, kStreams> graphs{};
  std::array<CUevent, kStreams> events{};
  std::vector<unsigned> registered(2 * kStreams * kWords);
  CU(cuMemHostRegister(registered.data(), registered.size() * sizeof(unsigned), 0));
  for (int i = 0; i < kStreams; ++i) {
    Lane& lane = lanes[i];
    lane.stream = make_stream();
    events[i] = make_event();
    lane.memory = device_memory(kWords * sizeof(unsigned));
    void* pinned = nullptr;
    CU(cuMemHostAlloc(&pinned, 2 * kWords * sizeof(unsigned), 0));
    lane.source = i % 2 == 0 ? static_cast<unsigned*>(pinned) : &registered[2 * i * kWords];
    lane.result = lane.source + kWords;
    graphs[i] = as_graph(lane, scale);
  }
  step("functions");
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      submit(lanes[i], scale, round % 3 == 2);
      if (round % 4 != 0) continue;
      CU(cuEventRecord(events[i], lanes[i].stream));
      CU(cuStreamWaitEvent(lanes[(i + 1) % kStreams].stream, events[i], 0));
    }
  }
  step("graphs behind them");
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < kStreams; ++i) CU(cuGraphLaunch(graphs[i], lanes[i].stream));
  CU(cuCtxSynchronize());
  for (const Lane& lane : lanes) {
    if (lane.wrong != 0) wrong("%u words were others", lane.wrong);
    HOLDS(lane.filled == 2 * kRounds && lane.checked == 2 * kRounds);
  }
  right();
}
