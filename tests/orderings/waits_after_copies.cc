// Programs copy a few bytes of pageable memory to the device and wait for the stream. When the wait
// has returned, all streams and all threads see the bytes, and what was in the stream before has
// ended.
// sim: FARGPU_SIM_JITTER=4000
// again: FARGPU_SPIN=2ms
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 40;

CUfunction load;
CUstream stream, other;
CUdeviceptr target, seen;
int value;

void copy_and_wait(CUdeviceptr to = target) {
  ++value;
  CU(cuMemcpyHtoDAsync(to, &value, sizeof value, stream));
  CU(cuStreamSynchronize(stream));
}

int read(CUdeviceptr from, CUstream in) {
  int there = 0;
  CU(cuMemcpyDtoHAsync(&there, from, sizeof there, in));
  CU(cuStreamSynchronize(in));
  return there;
}

void must_be_there(CUdeviceptr at = target) {
  const int there = read(at, other);
  if (there != value) wrong("%s: %d, not %d", current_step, there, value);
}

void other_streams_read() {
  for (int round = 0; round < kRounds; ++round) {
    step("a copy in another stream");
    copy_and_wait();
    must_be_there();
    step("a kernel in another stream");
    copy_and_wait();
    CU(launch(load, other, seen, target));
    must_be_there(seen);
    step("a copy behind copies");
    for (int copy = 0; copy < 3; ++copy) copy_and_wait(target + 4 * (copy % 2));
    must_be_there();
    step("a question about the stream");
    copy_and_wait();
    CU(cuStreamQuery(stream));
    must_be_there();
  }
}

void another_thread_reads() {
  step("another thread");
  std::atomic<int> told{0}, done{0};
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  std::thread reader([&] {
    CU(cuCtxSetCurrent(context));
    for (int round = 1; round <= kRounds; ++round) {
      while (told != round) std::this_thread::yield();
      must_be_there();
      done = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    (void)read(target, stream);
    copy_and_wait();
    told = round;
    while (done != round) std::this_thread::yield();
  }
  reader.join();
}

struct Hold {
  std::atomic<bool> may_return{false}, has_returned{false};
};
void CUDA_CB hold(void* data) {
  auto* const one = static_cast<Hold*>(data);
  while (!one->may_return) usleep(100);
  one->has_returned = true;
}

void beside_functions() {
  for (const CUstream held : {stream, other}) {
    step(held == stream ? "a function before the copy" : "a function in another stream");
    Hold one;
    (void)read(target, stream);
    CU(cuLaunchHostFunc(held, hold, &one));
    std::thread later([&] {
      usleep(30'000);
      one.may_return = true;
    });
    copy_and_wait();
    HOLDS(held != stream || one.has_returned);
    later.join();
    must_be_there();
  }
}

// The function comes in front of the wait and behind the copy.
void function_before_the_wait() {
  step("a function behind the copy");
  Hold one;
  (void)read(target, stream);
  ++value;
  CU(cuMemcpyHtoDAsync(target, &value, sizeof value, stream));
  CU(cuLaunchHostFunc(stream, hold, &one));
  std::thread later([&] {
    usleep(30'000);
    one.may_return = true;
  });
  CU(cuStreamSynchronize(stream));
  HOLDS(one.has_returned);
  later.join();
  must_be_there();
}

}  // namespace

int main() {
  begin();
  use_primary();
  load = kernel_of(load_kernels(), "load");
  target = device_memory(64), seen = device_memory(64);
  other = make_stream();
  CU(launch(load, other, seen, target));
  CU(cuCtxSynchronize());
  for (const CUstream each : {make_stream(), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    stream = each;
    other_streams_read();
    another_thread_reads();
    beside_functions();
    function_before_the_wait();
  }
  right();
}
