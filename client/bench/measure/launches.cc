// Launches of an empty kernel and of graphs, events, and the same from many streams and threads.
#include <atomic>
#include <thread>

#include "client/bench/figures/participants.h"
#include "client/bench/figures/timing.h"
#include "client/bench/measure/cases.h"
#include "client/bench/measure/streams.h"

namespace fargpu::bench {

namespace {

constexpr unsigned kBurst = 500;      // fewer than a driver's queue takes
constexpr unsigned kGraphNodes = 20;  // in a row
constexpr unsigned kGraphBurst = 20;

Answer launch(Gpu& gpu, const Question& question) {
  return bursts(
      question, kBurst, [&](unsigned) { gpu.launch(); }, [&] { gpu.synchronize(); });
}

Answer launch_synchronize(Gpu& gpu, const Question& question) {
  return timed(question, 1, [&] {
    gpu.launch();
    gpu.synchronize();
  });
}

class Event {
 public:
  Event() { NEED(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)driver.cuEventDestroy(event_); }
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

Answer event_record_synchronize(Gpu& gpu, const Question& question) {
  const Event event;
  return timed(question, 1, [&] {
    NEED(cuEventRecord(event.get(), gpu.stream()));
    NEED(cuEventSynchronize(event.get()));
  });
}

// Empty kernels in a row, instantiated.
class Graph {
 public:
  explicit Graph(const Gpu& gpu) {
    CUgraph graph = nullptr;
    NEED(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = gpu.kernel();
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
    CUgraphNode before = nullptr;
    for (unsigned i = 0; i < kGraphNodes; ++i) {
      CUgraphNode node = nullptr;
      NEED(cuGraphAddKernelNode(&node, graph, i == 0 ? nullptr : &before, i == 0 ? 0 : 1, &kernel));
      before = node;
    }
    NEED(cuGraphInstantiate(&executable_, graph, 0));
    NEED(cuGraphDestroy(graph));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { (void)driver.cuGraphExecDestroy(executable_); }
  void launch(CUstream stream) const { NEED(cuGraphLaunch(executable_, stream)); }

 private:
  CUgraphExec executable_ = nullptr;
};

Answer graph_launch(Gpu& gpu, const Question& question) {
  const Graph graph(gpu);
  return bursts(
      question, kGraphBurst, [&](unsigned) { graph.launch(gpu.stream()); },
      [&] { gpu.synchronize(); });
}

Answer graph_launch_synchronize(Gpu& gpu, const Question& question) {
  const Graph graph(gpu);
  return timed(question, 1, [&] {
    graph.launch(gpu.stream());
    gpu.synchronize();
  });
}

// One thread, launches in all streams in turn.
Answer streams_launch(Gpu& gpu, const Question& question) {
  const Streams streams(question.count);
  return bursts(
      question, kBurst, [&](unsigned i) { gpu.launch(streams[i]); },
      [&] { streams.synchronize(); });
}

// What one thread does, from 1 in `go` to 2, at least once: launch and synchronise in a stream of
// its own.
void work_in_thread(const Gpu& gpu, CUcontext context, CUstream stream, std::atomic<int>& go,
                    Histogram& times, std::string& error) try {
  NEED(cuCtxSetCurrent(context));
  const auto work = [&] {
    gpu.launch(stream);
    NEED(cuStreamSynchronize(stream));
  };
  work();
  while (go.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  do {
    const Clock::time_point begin = Clock::now();
    work();
    times.add(since(begin));
  } while (go.load(std::memory_order_relaxed) == 1);
} catch (const Failed& failure) {
  error = failure.what();
}

Answer threads_launch_synchronize(Gpu& gpu, const Question& question) {
  const Streams streams(question.count);
  CUcontext context = nullptr;
  CUdevice device = 0;
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  std::vector<Histogram> times(question.count);
  std::vector<std::string> errors(question.count);
  std::vector<std::thread> threads;
  std::atomic<int> go{0};
  for (unsigned i = 0; i < question.count; ++i) {
    threads.emplace_back(
        [&, i] { work_in_thread(gpu, context, streams[i], go, times[i], errors[i]); });
  }
  go.store(1, std::memory_order_release);
  std::this_thread::sleep_until(after(question.seconds));
  go.store(2, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors)
    if (!error.empty()) throw Failed(error);
  return shared_record(question.name, times);
}

}  // namespace

void add_launches(Cases& cases) {
  cases["launch"] = launch;
  cases["launch_synchronize"] = launch_synchronize;
  cases["event_record_synchronize"] = event_record_synchronize;
  cases["graph_launch"] = graph_launch;
  cases["graph_launch_synchronize"] = graph_launch_synchronize;
  cases["streams_launch"] = streams_launch;
  cases["threads_launch_synchronize"] = threads_launch_synchronize;
}

}  // namespace fargpu::bench
