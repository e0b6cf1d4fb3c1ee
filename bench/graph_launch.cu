// What a launch of a CUDA graph of 100 empty kernels costs: the caller's time of each of 50 in a
// row, of the first of them and of each other, and the time of each until all have run. Medians of
// 20 rounds. The first one comes after a wait, in which processors sleep and lose their caches.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "need.h"

namespace {

constexpr int kKernels = 100, kLaunches = 50, kRounds = 20;

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

__global__ void nothing() {}

}  // namespace

int main() {
  cudaStream_t stream;
  NEED(cudaStreamCreate(&stream));
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kKernels; ++i) nothing<<<1, 1, 0, stream>>>();
  cudaGraph_t graph;
  NEED(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  NEED(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<double> calls, firsts, others, ends;
  for (int round = -1; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    NEED(cudaGraphLaunch(exec, stream));
    const double first = us_since(begin);
    for (int i = 1; i < kLaunches; ++i) NEED(cudaGraphLaunch(exec, stream));
    const double all = us_since(begin);
    NEED(cudaStreamSynchronize(stream));
    if (round < 0) continue;  // the first one uploads the graph
    calls.push_back(all / kLaunches);
    firsts.push_back(first);
    others.push_back((all - first) / (kLaunches - 1));
    ends.push_back(us_since(begin) / kLaunches);
  }
  std::printf("graph of %d kernels: caller %.2f us (first %.2f us, others %.2f us), ", kKernels,
              median(calls), median(firsts), median(others));
  std::printf("end to end %.2f us\n", median(ends));
  NEED(cudaGraphExecDestroy(exec));
  NEED(cudaGraphDestroy(graph));
  return 0;
}
