// Launches of a graph are work like any other: they see what synchronous copies brought before,
// wait behind what holds their stream and behind each other, are as many as a program likes, do
// what the executable graph was when they were made, and keep what it refers to until they end; in
// whatever streams, contexts and threads they are made.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

CUfunction increment, store, load;

// A stream that waits until release().
class Hold {
 public:
  explicit Hold(CUstream stream) : word_(device_memory(sizeof(unsigned))) {
    CU(cuMemsetD32(word_, 0, 1));
    CU(cuStreamSynchronize(nullptr));
    CU(cuStreamWaitValue32(stream, word_, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void release() {
    static const CUstream other = make_stream();
    CU(cuStreamWriteValue32(other, word_, 1, 0));
  }

 private:
  CUdeviceptr word_;
};

template <typename... Values>
CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function, Values... values) {
  return ::add_kernel(graph, &after, after == nullptr ? 0 : 1, function, values...);
}

CUgraph new_graph() {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  return graph;
}

int read(CUdeviceptr word) {
  int value = 0;
  CU(cuMemcpyDtoH(&value, word, sizeof value));
  return value;
}

// The copy is of ordinary and of pinned memory, which change as soon as it has returned. A driver
// may return before the last bytes of ordinary memory are on the device: they are there for streams
// that wait for the default stream.
void see_copies() {
  step("a graph behind synchronous copies");
  const CUdeviceptr from = device_memory(1 << 20), to = device_memory(sizeof(int));
  const CUgraph graph = new_graph();
  add_kernel(graph, nullptr, load, to, from + (1 << 20) - sizeof(int));
  const CUgraphExec exec = instantiate(graph);
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  std::vector<int> ordinary(1 << 18);
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 1 << 20, 0));
  for (int i = 1; i <= 100; ++i) {
    int* const source = i % 2 == 0 ? ordinary.data() : static_cast<int*>(pinned);
    source[(1 << 18) - 1] = i;
    CU(cuMemcpyHtoD(from, source, 1 << 20));
    source[(1 << 18) - 1] = -1;
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
    HOLDS(read(to) == i);
  }
  CU(cuGraphExecDestroy(exec));
}

struct Gate {
  std::atomic<bool> open{false};
  static void CUDA_CB wait(void* data) {
    while (!static_cast<Gate*>(data)->open) std::this_thread::yield();
  }
};

// More than a driver's queue takes; the thread that launches may have to wait, no other one does.
void many_behind_a_function() {
  step("3000 launches behind a host function");
  constexpr int kLaunches = 3000;
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  const CUgraph graph = new_graph();
  add_kernel(graph, nullptr, increment, word);
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = make_stream();
  CU(cuCtxSynchronize());
  Gate gate;
  CU(cuLaunchHostFunc(stream, Gate::wait, &gate));
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    gate.open = true;
  });
  for (int i = 0; i < kLaunches; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  opens.join();
  HOLDS(read(word) == kLaunches);
  CU(cuGraphExecDestroy(exec));
}

// A launch does what the graph was when it was made, though it has not begun when it is changed.
void changed_while_launched() {
  step("a graph that is changed while launches of it wait");
  constexpr int kChanges = 40;
  const CUdeviceptr word = device_memory(sizeof(int));
  const CUdeviceptr seen = device_memory(kChanges * sizeof(int));
  const CUgraph graph = new_graph();
  const CUgraphNode node = add_kernel(graph, nullptr, store, word, 0);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  const CUstream stream = make_stream();
  Hold hold(stream);
  for (int i = 0; i < kChanges; ++i) {
    int value = i;
    CUdeviceptr to = word;
    void* parameters[] = {&to, &value};
    const CUDA_KERNEL_NODE_PARAMS params = one_thread(store, parameters);
    if (i % 2 == 0) {
      CU(cuGraphExecKernelNodeSetParams(exec, node, &params));
    } else {
      const CUgraph other = new_graph();
      add_kernel(other, nullptr, store, word, i);
      CUgraphExecUpdateResultInfo info{};
      CU(cuGraphExecUpdate(exec, other, &info));
      CU(cuGraphDestroy(other));
    }
    CU(cuGraphLaunch(exec, stream));
    CU(cuMemcpyDtoDAsync(seen + i * sizeof(int), word, sizeof(int), stream));
  }
  hold.release();
  CU(cuStreamSynchronize(stream));
  std::vector<int> values(kChanges);
  CU(cuMemcpyDtoH(values.data(), seen, kChanges * sizeof(int)));
  for (int i = 0; i < kChanges; ++i)
    if (values[i] != i) wrong("launch %d did what launch %d should do", i, values[i]);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

// Of two nodes one is enabled by turns, the other is changed and the graph uploaded.
void enabled_by_turns() {
  step("a node that is disabled while launches of it wait");
  constexpr int kLaunches = 30;
  const CUdeviceptr words = device_memory(2 * sizeof(int)), counted = words + sizeof(int);
  const CUdeviceptr seen = device_memory(2 * kLaunches * sizeof(int));
  CU(cuMemsetD32(words, 0, 2));
  const CUgraph graph = new_graph();
  const CUgraphNode stores = add_kernel(graph, nullptr, store, words, 0);
  const CUgraphNode counts = add_kernel(graph, stores, increment, counted);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  const CUstream stream = make_stream();
  Hold hold(stream);
  for (int i = 0; i < kLaunches; ++i) {
    int value = i;
    CUdeviceptr to = words;
    void* parameters[] = {&to, &value};
    const CUDA_KERNEL_NODE_PARAMS params = one_thread(store, parameters);
    CU(cuGraphExecKernelNodeSetParams(exec, stores, &params));
    CU(cuGraphNodeSetEnabled(exec, counts, i % 3 == 0 ? 1 : 0));
    if (i % 4 == 0) CU(cuGraphUpload(exec, stream));
    CU(cuGraphLaunch(exec, stream));
    CU(cuMemcpyDtoDAsync(seen + 2 * i * sizeof(int), words, 2 * sizeof(int), stream));
  }
  hold.release();
  CU(cuStreamSynchronize(stream));
  std::vector<int> values(2 * kLaunches);
  CU(cuMemcpyDtoH(values.data(), seen, values.size() * sizeof(int)));
  for (int i = 0; i < kLaunches; ++i) {
    if (values[2 * i] != i || values[2 * i + 1] != i / 3 + 1)
      wrong("launch %d left %d and %d", i, values[2 * i], values[2 * i + 1]);
  }
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

// What the graph waits for is another word after the change: one of the host, which a thread that
// makes no call stores while another one waits. Copies that have returned hold nobody up who could
// let the graph go on.
void waits_for_another_word() {
  step("a graph that waits for a word of the host since it was changed");
  const CUcontext context = [] {
    CUcontext current;
    CU(cuCtxGetCurrent(&current));
    return current;
  }();
  const CUdeviceptr words = device_memory(2 * sizeof(int));
  CU(cuMemsetD32(words, 0, 2));
  CU(cuCtxSynchronize());
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = words;
  operation.waitValue.value = 7;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.ctx = context;
  params.count = 1;
  params.paramArray = &operation;
  const CUgraph graph = new_graph();
  CUgraphNode node;
  CU(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  const CUdeviceptr counted = words + sizeof(int);
  add_kernel(graph, node, increment, counted);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  const CUstream stream = make_stream(), other = make_stream();
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamWriteValue32(other, words, 7, 0));
  CU(cuStreamSynchronize(stream));
  HOLDS(read(counted) == 1);

  void* told = nullptr;
  CU(cuMemHostAlloc(&told, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(told, 0, 4096);
  CU(cuMemHostGetDevicePointer(&operation.waitValue.address, told, 0));
  CU(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  CU(cuGraphLaunch(exec, stream));
  std::thread stores([told] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    __atomic_store_n(static_cast<int*>(told), 7, __ATOMIC_RELEASE);
  });
  CU(cuStreamSynchronize(stream));
  stores.join();
  HOLDS(read(counted) == 2);

  step("a copy behind a graph that waits");
  CU(cuMemsetD32(words, 0, 1));
  CU(cuCtxSynchronize());
  operation.waitValue.address = words;
  CU(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  const std::vector<int> bytes(1 << 14, 5);
  const CUdeviceptr to = device_memory(sizeof(int) << 14);
  CU(cuGraphLaunch(exec, stream));
  CU(cuMemcpyHtoDAsync(to, bytes.data(), sizeof(int) << 14, stream));
  CU(cuStreamWriteValue32(other, words, 7, 0));
  CU(cuStreamSynchronize(other));
  CU(cuStreamSynchronize(stream));
  HOLDS(read(counted) == 3 && read(to + sizeof(int)) == 5);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

// Each launch is behind the one before, whoever made it, and whatever context is current.
void from_many_threads() {
  step("launches of one graph by several threads, in streams of their own and default ones");
  constexpr int kThreads = 4, kRounds = 60;
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  const CUgraph graph = new_graph();
  const CUgraphNode inner = add_kernel(graph, nullptr, increment, word);
  add_kernel(graph, inner, increment, word);
  const CUgraph around = new_graph();
  CUgraphNode child;
  CU(cuGraphAddChildGraphNode(&child, around, nullptr, 0, graph));
  add_kernel(around, child, increment, word);
  CU(cuGraphDestroy(graph));
  const CUgraphExec exec = instantiate(around);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      CU(cuCtxSetCurrent(context));
      const CUstream stream = make_stream();
      for (int round = 0; round < kRounds; ++round) {
        CU(cuGraphLaunch(exec, stream));
        CU(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
        CU(cuGraphLaunch(exec, nullptr));
      }
      CU(cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CU(cuCtxSynchronize());
  HOLDS(read(word) == 3 * 3 * kThreads * kRounds);

  step("launches while another context is current");
  const CUstream stream = make_stream();
  const CUcontext other = new_context();
  const CUstream there = make_stream();
  for (int round = 0; round < kRounds; ++round) {
    CU(cuGraphLaunch(exec, stream));
    CU(cuGraphLaunch(exec, there));
    CU(cuGraphLaunch(exec, nullptr));
  }
  CU(cuCtxSynchronize());
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(context));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(read(word) == 3 * (3 * kThreads * kRounds + 3 * kRounds + 1));
  CU(cuGraphExecDestroy(exec));
}

// A capture that has a graph as a child in the middle of it.
void captured() {
  step("a captured graph with a child");
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  const CUgraph inner = new_graph();
  add_kernel(inner, nullptr, increment, word);
  const CUstream stream = make_stream();
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(launch(increment, stream, word));
  CUstreamCaptureStatus status{};
  CUgraph capturing = nullptr;
  const CUgraphNode* last = nullptr;
  size_t count = 0;
#if CUDA_VERSION >= 13000
  CU(cuStreamGetCaptureInfo(stream, &status, nullptr, &capturing, &last, nullptr, &count));
#else
  CU(cuStreamGetCaptureInfo(stream, &status, nullptr, &capturing, &last, &count));
#endif
  CUgraphNode child;
  CU(cuGraphAddChildGraphNode(&child, capturing, last, count, inner));
#if CUDA_VERSION >= 13000
  CU(cuStreamUpdateCaptureDependencies(stream, &child, nullptr, 1,
                                       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
#else
  CU(cuStreamUpdateCaptureDependencies(stream, &child, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
#endif
  CU(launch(increment, stream, word));
  CUgraph graph;
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphDestroy(inner));
  const CUgraphExec exec = instantiate(graph);
  for (int i = 0; i < 20; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(read(word) == 60);
  CU(cuGraphExecDestroy(exec));
}

void one_after_the_other() {
  step("a launch in another stream");
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  const CUgraph graph = new_graph();
  add_kernel(graph, nullptr, increment, word);
  const CUgraphExec exec = instantiate(graph);
  const CUstream first = make_stream(), second = make_stream();
  Hold hold(first);
  CU(cuGraphLaunch(exec, first));
  CU(cuGraphLaunch(exec, second));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const CUresult early = cuStreamQuery(second);
  if (early != CUDA_ERROR_NOT_READY) wrong("cuStreamQuery gave %s", name_of(early));
  hold.release();
  CU(cuStreamSynchronize(second));
  HOLDS(read(word) == 2);
  CU(cuStreamSynchronize(first));
  CU(cuGraphExecDestroy(exec));
}

// Streams of every sort, by turns: default ones are each thread's or the context's.
void in_every_stream() {
  step("launches in default streams, ordinary ones and a destroyed one");
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  const CUgraph graph = new_graph();
  add_kernel(graph, nullptr, increment, word);
  const CUgraphExec exec = instantiate(graph);
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    CU(cuGraphLaunch(exec, nullptr));
    CU(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    const CUstream stream = make_stream();
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamDestroy(stream));
  }
  CU(cuCtxSynchronize());
  HOLDS(read(word) == 3 * kRounds);
  CU(cuGraphExecDestroy(exec));
}

std::atomic<int> destroyed{0};
void CUDA_CB count(void*) { ++destroyed; }

// The references of an executable graph go with its last launch, not with the graph.
void objects_of_launches(bool with_function) {
  step(with_function ? "user objects of a graph with a host node" : "user objects of a graph");
  destroyed = 0;
  CUuserObject object;
  CU(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  const CUgraph graph = new_graph();
  add_kernel(graph, nullptr, increment, word);
  std::atomic<bool> gone_when_called{false};
  const CUDA_HOST_NODE_PARAMS host{
      [](void* data) { *static_cast<std::atomic<bool>*>(data) = destroyed != 0; },
      &gone_when_called};
  CUgraphNode node;
  if (with_function) CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
  CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  const CUgraphExec exec = instantiate(graph);
  const CUstream stream = make_stream();
  Hold hold(stream);
  for (int i = 0; i < 3; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuGraphExecDestroy(exec));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  HOLDS(destroyed == 0);
  hold.release();
  CU(cuStreamSynchronize(stream));
  HOLDS(read(word) == 3);
  HOLDS(!gone_when_called);
  // A thread of the driver's calls it.
  for (int i = 0; i < 1000 && destroyed == 0; ++i) {
    CU(cuStreamSynchronize(stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  HOLDS(destroyed == 1);
}

// Two threads launch at once; the references stay until the launches of both have ended.
void objects_of_launches_at_once() {
  step("user objects of a graph that two threads launch at once");
  constexpr int kRounds = 15, kLaunches = 20;
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  const CUdeviceptr word = device_memory(sizeof(int));
  const CUstream streams[] = {make_stream(), make_stream()};
  for (int round = 0; round < kRounds; ++round) {
    destroyed = 0;
    CUuserObject object;
    CU(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    const CUgraph graph = new_graph();
    add_kernel(graph, nullptr, increment, word);
    CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    const CUgraphExec exec = instantiate(graph);
    Hold holds[] = {Hold(streams[0]), Hold(streams[1])};
    std::atomic<int> ready{0};
    const auto launch_all = [&](CUstream stream) {
      CU(cuCtxSetCurrent(context));
      ++ready;
      while (ready < 2) {
      }
      for (int i = 0; i < kLaunches; ++i) CU(cuGraphLaunch(exec, stream));
    };
    std::thread other(launch_all, streams[1]);
    launch_all(streams[0]);
    other.join();
    CU(cuGraphExecDestroy(exec));
    holds[round % 2].release();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    HOLDS(destroyed == 0);
    holds[1 - round % 2].release();
    for (const CUstream stream : streams) CU(cuStreamSynchronize(stream));
    for (int i = 0; i < 1000 && destroyed == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    HOLDS(destroyed == 1);
  }
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule module = load_kernels();
  increment = kernel_of(module, "increment"), store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  see_copies();
  many_behind_a_function();
  changed_while_launched();
  enabled_by_turns();
  waits_for_another_word();
  from_many_threads();
  captured();
  one_after_the_other();
  in_every_stream();
  objects_of_launches(false);
  objects_of_launches(true);
  objects_of_launches_at_once();
  right();
}
