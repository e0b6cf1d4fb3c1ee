// A thread that waits for one stream waits for that one's work, however much other threads put into
// other streams.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

CUfunction spin, store;
std::atomic<bool> over{false};

// More than a driver's queue takes, behind a long kernel.
void fill(CUcontext context, CUstream stream, double seconds, CUdeviceptr word) {
  CU(cuCtxSetCurrent(context));
  CU(launch(spin, stream, microseconds(seconds)));
  for (int i = 0; i < 20000 && !over; ++i) CU(launch(store, stream, word, i));
}

// The wait begins before the other stream is full.
void wait_first(CUcontext context, CUdeviceptr word) {
  const CUstream waited = make_stream(), filled = make_stream();
  const CUevent event = make_event();
  over = false;
  CU(launch(spin, waited, microseconds(0.7)));
  CU(cuEventRecord(event, waited));
  const double before = now_seconds();
  std::thread filler([&] {
    usleep(100'000);
    fill(context, filled, 5, word);
  });
  step("cuEventSynchronize while another thread fills a second stream");
  CU(cuEventSynchronize(event));
  const double taken = now_seconds() - before;
  over = true;
  filler.join();
  CU(cuCtxSynchronize());
  if (taken > 3) wrong("a wait for 0.7 s of work took %.1f s", taken);
}

// Many launches of some milliseconds each: the wait is among them.
void wait_among_slow_launches(CUcontext context) {
  const CUstream waited = make_stream(), filled = make_stream();
  over = false;
  std::thread filler([&] {
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < 2500 && !over; ++i) CU(launch(spin, filled, microseconds(0.002)));
  });
  usleep(300'000);
  step("cuStreamSynchronize while another thread goes on launching");
  const double before = now_seconds();
  double longest = 0;
  for (int i = 0; i < 5; ++i) {
    const double begun = now_seconds();
    CU(cuStreamSynchronize(waited));
    longest = std::max(longest, now_seconds() - begun);
  }
  const double taken = now_seconds() - before;
  over = true;
  filler.join();
  CU(cuCtxSynchronize());
  if (taken > 2) wrong("five waits for an idle stream took %.1f s, one %.1f s", taken, longest);
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(launch(spin, nullptr, 1u));
  CU(launch(store, nullptr, word, 0));
  CU(cuCtxSynchronize());
  wait_first(context, word);
  wait_among_slow_launches(context);
  right();
}
