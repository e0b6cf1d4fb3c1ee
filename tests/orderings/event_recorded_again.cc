// Who waits for an event waits for what it held when the wait began, whatever is done with the
// event afterwards.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

CUfunction spin, store;

// Another thread records the event again and again, with 20 ms of work before each record.
void wait_while_it_is_recorded(CUcontext context) {
  const CUstream stream = make_stream();
  const CUevent event = make_event(), own[3] = {make_event(), make_event(), make_event()};
  std::atomic<bool> stop{false};
  CU(launch(spin, stream, microseconds(0.02)));
  CU(cuEventRecord(event, stream));
  std::thread recorder([&] {
    CU(cuCtxSetCurrent(context));
    const double end = now_seconds() + 8;
    for (int i = 0; !stop && now_seconds() < end; ++i) {
      if (i >= 3) CU(cuEventSynchronize(own[i % 3]));
      CU(launch(spin, stream, microseconds(0.02)));
      CU(cuEventRecord(event, stream));
      CU(cuEventRecord(own[i % 3], stream));
    }
  });
  step("cuEventSynchronize of an event that is recorded again and again");
  const double before = now_seconds();
  for (int i = 0; i < 5; ++i) CU(cuEventSynchronize(event));
  const double taken = now_seconds() - before;
  stop = true;
  recorder.join();
  if (taken > 4) wrong("five waits for 60 ms of work took %.1f s", taken);
  for (const CUevent one : own) CU(cuEventDestroy(one));
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(stream));
}

// A wait for 0.3 s of work, while the event is recorded behind 1.5 s of other work.
void wait_and_record_elsewhere(CUcontext context, unsigned flags) {
  const CUstream first = make_stream(), second = make_stream();
  CUevent event, begin;
  CU(cuEventCreate(&event, flags));
  CU(cuEventCreate(&begin, flags));
  CU(cuEventRecord(begin, first));
  CU(launch(spin, first, microseconds(0.3)));
  CU(cuEventRecord(event, first));
  std::atomic<double> waited{0};
  const double before = now_seconds();
  std::thread waiter([&] {
    CU(cuCtxSetCurrent(context));
    CU(cuEventSynchronize(event));
    waited = now_seconds() - before;
  });
  usleep(100'000);
  step("an event is recorded again while a thread waits for it");
  CU(launch(spin, second, microseconds(1.5)));
  CU(cuEventRecord(event, second));
  HOLDS(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  waiter.join();
  if (waited > 1.2) wrong("a wait for 0.3 s of work took %.1f s", waited.load());
  HOLDS(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CU(cuEventSynchronize(event));
  HOLDS(cuStreamQuery(second) == CUDA_SUCCESS);
  // It is the same event as before.
  float milliseconds = 0;
  const CUresult elapsed = cuEventElapsedTime(&milliseconds, begin, event);
  if ((flags & CU_EVENT_DISABLE_TIMING) != 0) {
    HOLDS(elapsed == CUDA_ERROR_INVALID_HANDLE);
  } else {
    CU(elapsed);
    if (milliseconds < 1400) wrong("1.5 s between two events are %.0f ms", double{milliseconds});
  }
  CU(cuEventDestroy(event));
  CU(cuEventDestroy(begin));
  CU(cuStreamDestroy(first));
  CU(cuStreamDestroy(second));
}

// A stream waits for what the event held, too; also when it is destroyed at once.
void stream_waits() {
  const CUstream first = make_stream(), second = make_stream(), third = make_stream();
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  CUevent event = make_event();
  CU(launch(spin, first, microseconds(0.2)));
  CU(launch(store, first, word, 1));
  CU(cuEventRecord(event, first));
  CU(cuStreamWaitEvent(second, event, 0));
  CU(launch(spin, third, microseconds(1.5)));
  CU(cuEventRecord(event, third));
  CU(cuEventDestroy(event));
  int seen = 0;
  CU(cuMemcpyDtoHAsync(&seen, word, sizeof seen, second));
  step("a stream that waits for an event");
  CU(cuStreamSynchronize(second));
  HOLDS(seen == 1);
  HOLDS(cuStreamQuery(third) == CUDA_ERROR_NOT_READY);
  CU(cuCtxSynchronize());
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  CU(launch(spin, nullptr, 1u));
  CU(cuCtxSynchronize());
  wait_while_it_is_recorded(context);
  wait_and_record_elsewhere(context, CU_EVENT_DEFAULT);
  wait_and_record_elsewhere(context, CU_EVENT_DISABLE_TIMING);
  stream_waits();
  right();
}
