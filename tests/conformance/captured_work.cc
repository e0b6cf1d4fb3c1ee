// A captured sequence does, at each launch, what the same calls do without a capture: kernels,
// copies of pinned and pageable memory, fills, a host function, a fork; also in two threads at
// once.
#include <array>
#include <atomic>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

constexpr unsigned kWords = 1000;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr int kLaunches = 40;

CUfunction add_kernel, fill_kernel;

void CUDA_CB count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

// What one sequence of work uses.
struct Work {
  CUstream stream = nullptr, side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;
  uint32_t* pinned = nullptr;
  std::vector<uint32_t> source, result, side_result;
  std::atomic<int> calls{0};

  Work() : source(kWords), result(kWords), side_result(kWords) {
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr* each : {&a, &b, &c}) NEED(cuMemAlloc(each, kBytes));
    NEED(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  }

  // In place of what was there: the same work must do the same.
  void prepare(uint32_t seed) {
    for (unsigned i = 0; i < kWords; ++i) {
      source[i] = seed * 3 + i;
      pinned[i] = seed * 5 + 2 * i;
      result[i] = side_result[i] = 0;
    }
  }

  void submit() {
    unsigned n = kWords, value = 11;
    void* sum[] = {&a, &b, &c, &n};
    void* fill[] = {&c, &value, &n};
    NEED(cuMemcpyHtoDAsync(a, source.data(), kBytes, stream));
    NEED(cuMemcpyHtoDAsync(b, pinned, kBytes, stream));
    NEED(cuLaunchKernel(add_kernel, 8, 1, 1, 128, 1, 1, 0, stream, sum, nullptr));
    NEED(cuLaunchHostFunc(stream, count, &calls));
    NEED(cuEventRecord(fork, stream));
    NEED(cuStreamWaitEvent(side, fork, 0));
    NEED(cuMemcpyDtoHAsync(side_result.data(), c, kBytes, side));
    NEED(cuEventRecord(join, side));
    NEED(cuMemsetD32Async(b, 7, kWords / 2, stream));
    NEED(cuStreamWaitEvent(stream, join, 0));
    NEED(cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, stream, fill, nullptr));
    NEED(cuMemcpyDtoDAsync(c + 512, b, 1024, stream));
    NEED(cuMemcpyDtoHAsync(pinned, b, kBytes, stream));
    NEED(cuMemcpyDtoHAsync(result.data(), c, kBytes, stream));
  }

  uint32_t outcome() const {
    return checksum(result) ^ (checksum(side_result) * 3) ^ (checksum(pinned, kBytes) * 7);
  }
};

// The outcomes of all rounds; `captured`: of launches of a graph.
std::vector<uint32_t> run(Work& work, bool captured) {
  CUgraphExec exec = nullptr;
  if (captured) {
    CUgraph graph = nullptr;
    NEED(cuStreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    work.submit();
    NEED(cuStreamEndCapture(work.stream, &graph));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphDestroy(graph));
  }
  std::vector<uint32_t> outcomes;
  for (int i = 0; i < kLaunches; ++i) {
    work.prepare(static_cast<uint32_t>(i));
    if (captured) {
      NEED(cuGraphLaunch(exec, work.stream));
    } else {
      work.submit();
    }
    NEED(cuStreamSynchronize(work.stream));
    outcomes.push_back(work.outcome());
  }
  if (exec != nullptr) NEED(cuGraphExecDestroy(exec));
  return outcomes;
}

}  // namespace

int main() {
  CUcontext context = make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&add_kernel, module, "add"));
  NEED(cuModuleGetFunction(&fill_kernel, module, "fill"));

  Work work;
  const std::vector<uint32_t> plain = run(work, false);
  VALUE(work.calls.load());
  VALUE(plain[0]);
  VALUE(checksum(plain));
  const std::vector<uint32_t> captured = run(work, true);
  VALUE(work.calls.load());
  VALUE(captured == plain);

  // Two threads capture at once, launch at once, and a third one does without captures.
  std::array<std::vector<uint32_t>, 3> outcomes;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([&, i] {
      NEED(cuCtxSetCurrent(context));
      Work own;
      for (int round = 0; round < 3; ++round) outcomes[i] = run(own, i != 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<uint32_t>& each : outcomes) VALUE(each == plain);
  return 0;
}
