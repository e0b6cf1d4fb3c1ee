// What a call costs its caller, by its class: one that the client answers, one that is sent and not
// waited for, one that waits for the server.
#include "client/bench/figures/timing.h"
#include "client/bench/measure/cases.h"
#include "client/bench/measure/waiting_calls.h"

namespace fargpu::bench {

namespace {

constexpr unsigned kBatch = 100;
constexpr unsigned kBurst = 500;  // fewer than a driver's queue takes
constexpr size_t kAllocation = 1 << 20;

Answer call_local(Gpu&, const Question& question) {
  return timed(question, kBatch, [] {
    for (unsigned i = 0; i < kBatch; ++i) {
      int least = 0, greatest = 0;
      NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
    }
  });
}

Answer call_deferred(Gpu&, const Question& question) {
  return timed(question, 1, [] {
    CUevent event = nullptr;
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventDestroy(event));
  });
}

Answer call_sync(Gpu& gpu, const Question& question) {
  return timed(question, 1, [&] { query_stream(gpu); });
}

Answer call_get(Gpu&, const Question& question) { return timed(question, 1, get_limit); }

Answer call_allocate(Gpu&, const Question& question) {
  return timed(question, 1, [] {
    CUdeviceptr memory = 0;
    NEED(cuMemAlloc(&memory, kAllocation));
    NEED(cuMemFree(memory));
  });
}

Answer call_async(Gpu& gpu, const Question& question) {
  const CUdeviceptr memory = gpu.device();
  return bursts(
      question, kBurst, [&](unsigned i) { NEED(cuMemsetD32Async(memory, i, 1, gpu.stream())); },
      [&] { gpu.synchronize(); });
}

}  // namespace

void add_calls(Cases& cases) {
  cases["call_local"] = call_local;
  cases["call_deferred"] = call_deferred;
  cases["call_sync"] = call_sync;
  cases["call_get"] = call_get;
  cases["call_allocate"] = call_allocate;
  cases["call_async"] = call_async;
}

}  // namespace fargpu::bench
