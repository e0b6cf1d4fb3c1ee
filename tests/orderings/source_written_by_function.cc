// A copy from pinned memory reads what a host function has written there, if its stream waits for
// that function: in any way in which streams wait for each other. The function is in another stream
// and returns after the call of the copy. A copy in a stream that waits for no function does not
// wait for one either.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kMost = 200u << 10;

// a, b, c: independent of the legacy stream; d, e: not.
CUstream a, b, c, d, e;
CUevent first, second;
CUdeviceptr device, word;
unsigned char* source;
int value;
size_t length;
std::atomic<bool> may_return;

void CUDA_CB fill(void*) {
  while (!may_return) usleep(100);
  std::memset(source, value, length);
}
void CUDA_CB fill_in_callback(CUstream, CUresult, void*) { fill(nullptr); }
void put(CUstream stream) { CU(cuLaunchHostFunc(stream, fill, nullptr)); }

void event_from_to(CUstream from, CUevent event, CUstream to) {
  CU(cuEventRecord(event, from));
  CU(cuStreamWaitEvent(to, event, 0));
}

void must_be(int wanted, CUdeviceptr at, const char* way) {
  static unsigned char there[kMost];
  CU(cuMemcpyDtoH(there, at, length));
  for (size_t i = 0; i < length; ++i) {
    if (there[i] != wanted)
      wrong("%s, %zu bytes: byte %zu is %d, not %d", way, length, i, there[i], wanted);
  }
}

// `before()` puts the function somewhere, and the copy's stream behind it.
void each_size(const char* way, CUstream stream, const std::function<void()>& before,
               CUdeviceptr to = device) {
  for (const size_t bytes : {size_t{4}, size_t{4096}, kMost}) {
    step(way);
    length = bytes;
    value = value % 100 + 2;
    std::memset(source, value - 1, length);
    may_return = false;
    before();
    CU(cuMemcpyHtoDAsync(to, source, length, stream));
    may_return = true;
    CU(cuStreamSynchronize(stream));
    must_be(value, to, way);
    CU(cuCtxSynchronize());
  }
}

// A driver knows of no work ahead of the copy where its stream waits for others without having any
// work: it reads up to 64 KiB in the call.
void behind_a_fill(const char* way, CUstream stream, const std::function<void()>& before) {
  each_size(way, stream, [&] {
    before();
    CU(cuMemsetD32Async(word, 1, 1, stream));
  });
}

void by_streams_and_events() {
  each_size("a function in the same stream", a, [] { put(a); });
  each_size("a callback in the same stream", a,
            [] { CU(cuStreamAddCallback(a, fill_in_callback, nullptr, 0)); });
  each_size("an event", b, [] {
    put(a);
    event_from_to(a, first, b);
  });
  each_size("an event that was recorded again before the copy", b, [] {
    put(a);
    event_from_to(a, first, b);
    CU(cuEventRecord(first, c));
  });
  each_size("an event with flags", b, [] {
    put(a);
    CU(cuEventRecordWithFlags(first, a, CU_EVENT_RECORD_DEFAULT));
    CU(cuStreamWaitEvent(b, first, 0));
  });
  each_size("two events", c, [] {
    put(a);
    event_from_to(a, first, b);
    event_from_to(b, second, c);
  });
  each_size("an event of the legacy stream", a, [] {
    put(d);
    event_from_to(CU_STREAM_LEGACY, first, a);
  });
  each_size("an event of all streams", b, [] {
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    put(a);
    CU(cuCtxRecordEvent(context, first));
    CU(cuStreamWaitEvent(b, first, 0));
  });
  behind_a_fill("an event for all streams", b, [] {
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    put(a);
    CU(cuEventRecord(first, a));
    CU(cuCtxWaitEvent(context, first));
  });
}

void by_the_legacy_stream() {
  behind_a_fill("the legacy stream behind a function", CU_STREAM_LEGACY, [] { put(d); });
  behind_a_fill("a function in the legacy stream", d, [] { put(CU_STREAM_LEGACY); });
  behind_a_fill("a thread's stream behind the legacy one", CU_STREAM_PER_THREAD,
                [] { put(CU_STREAM_LEGACY); });
  behind_a_fill("two streams around work of the legacy one", e, [] {
    put(d);
    CU(cuMemsetD32Async(word, 1, 1, CU_STREAM_LEGACY));
  });
  behind_a_fill("an event and the legacy stream", e, [] {
    put(a);
    event_from_to(a, first, d);
    CU(cuMemsetD32Async(word, 1, 1, CU_STREAM_LEGACY));
  });
  each_size("a copy that waits", CU_STREAM_LEGACY, [] {
    put(d);
    std::thread([] {
      usleep(30'000);
      may_return = true;
    }).detach();
    CU(cuMemcpyHtoD(device, source, length));
    must_be(value, device, "a copy that waits");
  });
}

CUgraphExec captured(const std::function<void()>& work) {
  CUgraph graph;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  work();
  CU(cuStreamEndCapture(a, &graph));
  return instantiate(graph);
}

void by_graphs() {
  const CUgraphExec plain = captured([] { CU(cuMemsetD32Async(word, 1, 1, a)); });
  const CUgraphExec filling = captured([] {
    CU(cuMemsetD32Async(word, 1, 1, a));
    put(a);
    CU(cuMemsetD32Async(word, 2, 1, a));
  });
  const CUgraphExec recording =
      captured([] { CU(cuEventRecordWithFlags(first, a, CU_EVENT_RECORD_EXTERNAL)); });
  const CUgraphExec waiting =
      captured([] { CU(cuStreamWaitEvent(a, first, CU_EVENT_WAIT_EXTERNAL)); });
  for (const CUgraphExec exec : {plain, recording, waiting}) CU(cuGraphLaunch(exec, c));
  CU(cuCtxSynchronize());
  each_size("a function in a graph", a, [&] { CU(cuGraphLaunch(filling, a)); });
  each_size("a function in a graph, and an event", b, [&] {
    CU(cuGraphLaunch(filling, a));
    event_from_to(a, first, b);
  });
  each_size("a graph that is launched in two streams", b, [&] {
    put(a);
    CU(cuGraphLaunch(plain, a));
    CU(cuGraphLaunch(plain, b));
  });
  each_size("a graph with a function and launched again", b, [&] {
    put(a);
    CU(cuGraphLaunch(plain, a));
    CU(cuGraphLaunch(plain, c));
    event_from_to(c, first, b);
  });
  each_size("a graph that records an event", b, [&] {
    put(a);
    CU(cuGraphLaunch(recording, a));
    CU(cuStreamWaitEvent(b, first, 0));
  });
  each_size("a graph that waits for an event", b, [&] {
    put(a);
    CU(cuEventRecord(first, a));
    CU(cuGraphLaunch(waiting, b));
  });
  for (const CUgraphExec exec : {plain, filling, recording, waiting}) CU(cuGraphExecDestroy(exec));
}

void by_another_device() {
  if (device_count() < 2) return;
  CUcontext here;
  CU(cuCtxGetCurrent(&here));
  use_primary(1);
  const CUstream there = make_stream();
  const CUdeviceptr memory = device_memory(kMost);
  each_size(
      "an event of another device", there,
      [&] {
        CU(cuCtxPushCurrent(here));
        put(a);
        CU(cuEventRecord(first, a));
        CU(cuCtxPopCurrent(nullptr));
        CU(cuStreamWaitEvent(there, first, 0));
      },
      memory);
  CU(cuCtxSetCurrent(here));
}

// No stream that waits for the function has the copy, so the copy ends before it.
void beside_a_function() {
  step("a copy beside a function");
  length = 4;
  value = 7;
  may_return = false;
  put(a);
  CU(cuEventRecord(first, a));
  CU(cuEventRecord(first, b));  // it is b's now
  event_from_to(b, first, c);
  std::memset(source, 3, length);
  CU(cuMemcpyHtoDAsync(device, source, length, c));
  CU(cuStreamSynchronize(c));
  may_return = true;
  CU(cuCtxSynchronize());
  must_be(3, device, "a copy beside a function");
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  a = make_stream(), b = make_stream(), c = make_stream();
  for (CUstream* const stream : {&d, &e}) CU(cuStreamCreate(stream, CU_STREAM_DEFAULT));
  first = make_event(), second = make_event();
  device = device_memory(kMost), word = device_memory(64);
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, kMost, CU_MEMHOSTALLOC_PORTABLE));
  source = static_cast<unsigned char*>(pinned);
  beside_a_function();
  by_streams_and_events();
  by_the_legacy_stream();
  by_graphs();
  by_another_device();
  right();
}
