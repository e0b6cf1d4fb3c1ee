// A kernel that is looked up waits for work that was queued before at most: not for what other
// threads go on queuing, and not for other devices.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr const char* kNames[] = {"spin", "store", "load", "fault"};

void CUDA_CB pause_2_ms(void*) { usleep(2000); }

void CUDA_CB wait_for(void* flag) {
  const auto* const set = static_cast<std::atomic<bool>*>(flag);
  while (!*set) usleep(1000);
}

// Another thread has always one or two functions in a stream.
void look_up_beside_functions(CUcontext context) {
  const CUmodule module = load_kernels();
  std::atomic<bool> stop{false};
  std::atomic<int> queued{0};
  std::thread feeder([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream stream = make_stream();
    const CUevent done[2] = {make_event(), make_event()};
    const double end = now_seconds() + 10;
    for (int i = 0; !stop && now_seconds() < end; ++i) {
      if (i >= 2) CU(cuEventSynchronize(done[i % 2]));
      CU(cuLaunchHostFunc(stream, pause_2_ms, nullptr));
      CU(cuEventRecord(done[i % 2], stream));
      queued = i + 1;
    }
    CU(cuStreamSynchronize(stream));
  });
  while (queued < 10) usleep(1000);
  step("cuModuleGetFunction while another thread keeps host functions in a stream");
  double longest = 0;
  for (const char* name : kNames) {
    const double before = now_seconds();
    kernel_of(module, name);
    longest = std::max(longest, now_seconds() - before);
  }
  const int during = queued;
  usleep(100'000);
  HOLDS(queued > during);  // nor are they held for ever
  stop = true;
  feeder.join();
  if (longest > 2) wrong("looking up a kernel took %.1f s", longest);
}

// A function on one device that returns when a load on another one is done.
void look_up_on_another_device(CUcontext here, CUcontext there) {
  std::atomic<bool> loaded{false};
  const CUstream stream = make_stream();
  CU(cuLaunchHostFunc(stream, wait_for, &loaded));
  CU(cuCtxSetCurrent(there));
  step("loading on a device while a function holds a stream of another one");
  const CUmodule module = load_kernels();
  for (const char* name : kNames) kernel_of(module, name);
  CU(launch(kernel_of(module, "spin"), nullptr, 10u));
  CU(cuCtxSynchronize());
  loaded = true;
  CU(cuCtxSetCurrent(here));
  CU(cuStreamSynchronize(stream));
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  look_up_beside_functions(context);
  if (device_count() > 1) {
    const CUcontext there = use_primary(1);
    CU(cuCtxSetCurrent(context));
    look_up_on_another_device(context, there);
  }
  right();
}
