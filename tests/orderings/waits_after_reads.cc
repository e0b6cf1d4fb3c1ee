// A wait for a stream right behind a copy to the host, which the caller has waited for, has nothing
// to wait for; it must wait all the same if anything has been put into a stream in between, by
// whomever, and for streams of which the copy says nothing.
// again: FARGPU_ZERO_COPY=0
// again: FARGPU_SPIN=2ms
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 15;
constexpr unsigned kLong = 3000;  // microseconds

CUfunction spin, store;
CUcontext context;

// Device memory that is read, and host memory for it that nobody has pinned.
struct Source {
  static constexpr size_t kBytes = 2 << 20;
  const CUdeviceptr memory = device_memory(kBytes);
  int* const to = static_cast<int*>(std::malloc(kBytes));
  int value = 0;

  void read(CUstream stream, size_t bytes = sizeof(int)) {
    CU(launch(store, stream, memory, ++value));
    CU(cuMemcpyDtoHAsync(to, memory, bytes, stream));
    HOLDS(*to == value);
  }
};

// Work that takes long, with an event at its end.
struct Work {
  CUevent end = make_event();
  void put(CUstream stream) const {
    CU(launch(spin, stream, kLong));
    CU(cuEventRecord(end, stream));
  }
  bool is_done() const { return cuEventQuery(end) == CUDA_SUCCESS; }
};

void wait(CUstream stream) { CU(cuStreamSynchronize(stream)); }

void work_behind_the_read(Source& source, CUstream stream, size_t bytes) {
  step("work behind the read");
  const Work work;
  for (int round = 0; round < kRounds; ++round) {
    source.read(stream, bytes);
    if (round % 2 == 0) wait(stream);
    work.put(stream);
    wait(stream);
    HOLDS(work.is_done());
    source.read(stream, bytes);
    wait(stream);
    wait(stream);
  }
}

void work_of_another_thread(Source& source, CUstream stream) {
  step("work of another thread behind the read");
  const Work work;
  for (int round = 0; round < kRounds; ++round) {
    source.read(stream);
    std::thread([&] {
      CU(cuCtxSetCurrent(context));
      work.put(stream);
    }).join();
    wait(stream);
    HOLDS(work.is_done());
  }
}

void other_streams(Source& source, CUstream read, CUstream busy) {
  step("another stream than the one of the read");
  const Work work;
  for (int round = 0; round < kRounds; ++round) {
    work.put(busy);
    source.read(read);
    wait(busy);
    HOLDS(work.is_done());
  }
}

// The legacy stream's work is that of all blocking streams.
void legacy(Source& source) {
  step("the legacy stream and a blocking one");
  CUstream blocking = nullptr;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  const Work work;
  for (int round = 0; round < kRounds; ++round) {
    source.read(nullptr);
    work.put(blocking);
    wait(nullptr);
    HOLDS(work.is_done());
    source.read(blocking);
    work.put(nullptr);
    wait(blocking);
    wait(CU_STREAM_LEGACY);
    HOLDS(work.is_done());
  }
  CU(cuStreamDestroy(blocking));
}

void CUDA_CB count_late(void* counter) {
  usleep(kLong);
  __atomic_add_fetch(static_cast<int*>(counter), 1, __ATOMIC_SEQ_CST);
}

void other_kinds_of_work(Source& source, CUstream stream, CUstream busy) {
  step("other kinds of work behind the read");
  int called = 0;
  const Work work;
  const CUevent joined = make_event();
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(launch(spin, stream, kLong));
  CU(launch(store, stream, source.memory + 64, 77));
  CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  for (int round = 1; round <= kRounds; ++round) {
    source.read(stream);
    CU(cuLaunchHostFunc(stream, count_late, &called));
    wait(stream);
    HOLDS(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == round);

    work.put(busy);
    CU(cuEventRecord(joined, busy));
    source.read(stream);
    CU(cuStreamWaitEvent(stream, joined, 0));
    wait(stream);
    HOLDS(work.is_done());

    source.read(stream);
    CU(cuGraphLaunch(exec, stream));
    CU(cuEventRecord(joined, stream));
    wait(stream);
    HOLDS(cuEventQuery(joined) == CUDA_SUCCESS);

    source.read(stream);
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    HOLDS(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph none = nullptr;
    HOLDS(cuStreamEndCapture(stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

// What was pinned arrives by itself, perhaps later than what says that its stream has passed it.
void pinned_copies(Source& source, CUstream stream) {
  step("pinned copies before and behind the read");
  constexpr size_t kWords = Source::kBytes / sizeof(int);
  int* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), Source::kBytes, 0));
  for (int round = 1; round <= kRounds; ++round) {
    CU(cuMemsetD32Async(source.memory, static_cast<unsigned>(round), kWords, stream));
    CU(cuMemcpyDtoHAsync(pinned, source.memory, Source::kBytes, stream));
    source.read(stream);
    wait(stream);
    HOLDS(pinned[0] == round && pinned[kWords - 1] == round);
    CU(cuMemsetD32Async(source.memory, static_cast<unsigned>(-round), kWords, stream));
    CU(cuMemcpyDtoHAsync(pinned, source.memory, Source::kBytes, stream));
    wait(stream);
    HOLDS(pinned[0] == -round && pinned[kWords - 1] == -round);
  }
  CU(cuMemFreeHost(pinned));
}

// The legacy streams of two contexts.
void two_contexts(Source& source) {
  step("two contexts");
  const CUcontext other = new_context();
  const CUfunction other_spin = kernel_of(load_kernels(), "spin");
  const CUevent end = make_event();
  for (int round = 0; round < kRounds; ++round) {
    CU(launch(other_spin, nullptr, kLong));
    CU(cuEventRecord(end, nullptr));
    CU(cuCtxSetCurrent(context));
    source.read(nullptr);
    CU(cuCtxSetCurrent(other));
    wait(nullptr);
    HOLDS(cuEventQuery(end) == CUDA_SUCCESS);
  }
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(context));
}

// An error of another stream comes out to who waits for an idle one again and again.
// Its kernel is one that has run: the first launch of a kernel may wait for all that runs.
void fault(Source& source, CUstream stream, CUstream other) {
  step("an error of another stream");
  CU(launch(spin, other, 100 * kLong));
  CU(launch(store, other, CUdeviceptr{16}, 1));
  CUresult result = CUDA_SUCCESS;
  source.read(stream);
  for (const double until = now_seconds() + 20; now_seconds() < until && result == CUDA_SUCCESS;)
    result = cuStreamSynchronize(stream);
  HOLDS(result == CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace

int main() {
  begin();
  context = use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  Source source;
  const CUstream first = make_stream(), second = make_stream();
  for (const CUstream stream : {first, CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    work_behind_the_read(source, stream, sizeof(int));
    work_behind_the_read(source, stream, Source::kBytes);
  }
  work_of_another_thread(source, first);
  work_of_another_thread(source, nullptr);
  other_streams(source, first, second);
  other_streams(source, nullptr, second);
  other_streams(source, second, CU_STREAM_PER_THREAD);
  legacy(source);
  other_kinds_of_work(source, first, second);
  pinned_copies(source, first);
  two_contexts(source);
  fault(source, first, second);
  right();
}
