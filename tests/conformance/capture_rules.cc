// What may be done during captures and what comes of it: events, joined streams, wrong threads,
// default streams, the ends of streams and graphs.
#include "tests/conformance/capture_rules.h"

#include "tests/conformance/kernels.h"

namespace {

void beginnings() {
  section("begin and end");
  CUgraph graph = nullptr;
  SHOW(cuStreamBeginCapture(nullptr, kGlobal));
  SHOW(cuStreamBeginCapture(CU_STREAM_LEGACY, kGlobal));
  SHOW(cuStreamBeginCapture(a, static_cast<CUstreamCaptureMode>(3)));
  SHOW(cuStreamEndCapture(a, &graph));
  SHOW(cuStreamEndCapture(nullptr, &graph));
  SHOW(cuStreamBeginCapture(a, kGlobal));
  info(a);
  SHOW(cuStreamBeginCapture(a, kGlobal));
  info(a);
  SHOW(cuStreamEndCapture(a, nullptr));
  info(a);
  end(a);
  info(a);
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(on_thread([&] { return cuStreamEndCapture(a, &graph); }));
  info(a);
  end(a);
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(on_thread([&] { return cuStreamEndCapture(a, &graph); }));
  VALUE(graph != nullptr);
  info(a);
  SHOW(cuStreamBeginCapture(CU_STREAM_PER_THREAD, kGlobal));
  SHOW(work(CU_STREAM_PER_THREAD));
  info(CU_STREAM_PER_THREAD);
  end(CU_STREAM_PER_THREAD);
  CUstreamCaptureStatus status{};
  SHOW(cuStreamIsCapturing(nullptr, &status));
  SHOW(cuStreamIsCapturing(a, nullptr));
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuStreamIsCapturing(nullptr, &status));
  info(a);
  info(nullptr);
  info(c);
  info(a);
  end(a);
  SHOW(cuStreamBeginCapture(c, kGlobal));
  SHOW(cuStreamIsCapturing(nullptr, &status));
  info(nullptr);
  end(c);
}

void default_streams() {
  section("the legacy stream beside captures");
  for (CUstream stream : {a, c}) {
    for (const auto mode : {kGlobal, kThread, kRelaxed}) {
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(work(nullptr));
      info(stream);
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(launch(nullptr));
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(cuMemsetD32(memory, 1, 16));
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      unsigned word = 0;
      SHOW(cuMemcpyDtoH(&word, memory, 4));
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(cuStreamSynchronize(nullptr));
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(cuCtxSynchronize());
      end(stream);
      SHOW(cuStreamBeginCapture(stream, mode));
      SHOW(on_thread([&] { return work(nullptr); }));
      end(stream);
    }
  }
  section("questions about the legacy stream");
  unsigned flags = 0;
  unsigned long long id = 0;
  int priority = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
#define BESIDE(call)                         \
  do {                                       \
    NEED(cuStreamBeginCapture(a, kRelaxed)); \
    SHOW(call);                              \
    info(a);                                 \
    end(a);                                  \
  } while (0)
  BESIDE(cuStreamGetFlags(nullptr, &flags));
  BESIDE(cuStreamGetId(nullptr, &id));
  BESIDE(cuStreamGetDevice(nullptr, &device));
  BESIDE(cuStreamGetPriority(nullptr, &priority));
  BESIDE(cuStreamGetCtx(nullptr, &context));
  BESIDE(cuMemcpyPeerAsync(memory, nullptr, memory + 512, nullptr, 16, nullptr));
  BESIDE(cuStreamAddCallback(nullptr, callback, nullptr, 0));
  BESIDE(cuLaunchHostFunc(nullptr, host_function, nullptr));
  BESIDE(cuStreamQuery(nullptr));
  BESIDE(cuStreamBeginCapture(nullptr, kRelaxed));
  BESIDE(cuMemsetD8_v2_ptds(memory, 1, 16));
  BESIDE(cuMemsetD8Async(memory, 1, 16, CU_STREAM_PER_THREAD));
  NEED(cuStreamBeginCapture(CU_STREAM_PER_THREAD, kRelaxed));
  SHOW(cuMemsetD8_v2_ptds(memory, 1, 16));
  info(CU_STREAM_PER_THREAD);
  end(CU_STREAM_PER_THREAD);
  CUevent event = make_event();
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuEventRecord(event, nullptr));
  end(a);
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  end(a);
  SHOW(cuStreamBeginCapture(c, kRelaxed));
  SHOW(work(c));
  SHOW(cuEventRecord(event, c));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  info(c);
  end(c);
}

void forks() {
  section("forks and joins");
  CUevent event = make_event(), other = make_event();
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  info(b);
  SHOW(work(b));
  SHOW(launch(a));
  SHOW(cuEventRecord(other, b));
  SHOW(cuStreamWaitEvent(a, other, 0));
  info(a);
  SHOW(work(a));
  info(a);
  end(a);
  info(b);

  section("a fork without work");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  end(a);

  section("a fork from nothing");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  info(b);
  SHOW(work(b));
  SHOW(cuEventRecord(other, b));
  SHOW(cuStreamWaitEvent(a, other, 0));
  end(a);

  section("a fork that is not joined");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  end(a);

  section("a joined stream goes on");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  SHOW(cuEventRecord(other, b));
  SHOW(work(b));
  SHOW(cuStreamWaitEvent(a, other, 0));
  end(a);

  section("the end of a joined stream");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(cuStreamBeginCapture(b, kGlobal));
  info(b);
  CUgraph none = nullptr;
  SHOW(cuStreamEndCapture(b, &none));
  info(b);
  info(a);
  end(a);
  info(b);

  section("a wait twice");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(a, event, 0));
  SHOW(cuStreamWaitEvent(a, event, 0));
  info(a);
  SHOW(work(a));
  SHOW(cuStreamWaitEvent(a, event, 0));
  info(a);
  end(a);

  section("dropped dependencies");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  SHOW(cuEventRecord(other, b));
  SHOW(cuStreamWaitEvent(a, other, 0));
  info(a);
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, nullptr, nullptr, 0,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  info(a);
  end(a);
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  SHOW(cuStreamUpdateCaptureDependencies_v2(b, nullptr, nullptr, 0,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  info(b);
  end(a);
}

void events() {
  CUevent event = make_event(CU_EVENT_DEFAULT), other = make_event(CU_EVENT_DEFAULT);
  CUevent fresh = make_event();
  float milliseconds = 0;
  section("a captured event");
  NEED(cuEventRecord(other, b));
  NEED(cuStreamSynchronize(b));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuEventQuery(event));
  info(a);
  SHOW(cuEventSynchronize(event));
  info(a);
  SHOW(cuEventElapsedTime(&milliseconds, other, event));
  SHOW(cuEventElapsedTime(&milliseconds, event, other));
  info(a);
  end(a);
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventElapsedTime(&milliseconds, other, event));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamWaitEvent(a, event, 0));
  info(a);
  end(a);
  SHOW(cuEventRecord(event, b));
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));

  section("a captured event in the mode global");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuEventRecord(event, a));
  SHOW(cuEventElapsedTime(&milliseconds, other, event));
  info(a);
  SHOW(cuEventQuery(event));
  info(a);
  end(a);

  section("an event from outside");
  NEED(cuEventRecord(event, b));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamWaitEvent(a, event, 0));
  info(a);
  end(a);
  CUevent never = make_event();
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamWaitEvent(a, never, 0));
  info(a);
  end(a);

  section("two captures");
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamBeginCapture(b, kRelaxed));
  SHOW(work(a));
  SHOW(work(b));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  info(a);
  info(b);
  end(b);
  end(a);

  section("external events");
  SHOW(cuEventRecordWithFlags(fresh, a, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(a, fresh, CU_EVENT_WAIT_EXTERNAL));
  SHOW(cuEventRecordWithFlags(fresh, a, 2));
  SHOW(cuStreamWaitEvent(a, fresh, 2));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuEventRecordWithFlags(fresh, a, CU_EVENT_RECORD_EXTERNAL));
  info(a);
  SHOW(cuStreamWaitEvent(a, fresh, CU_EVENT_WAIT_EXTERNAL));
  info(a);
  SHOW(cuEventQuery(fresh));
  SHOW(cuEventSynchronize(fresh));
  SHOW(cuStreamWaitEvent(b, fresh, 0));
  end(a);
  NEED(cuEventRecord(fresh, b));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuStreamWaitEvent(a, fresh, CU_EVENT_WAIT_EXTERNAL));
  info(a);
  end(a);
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuEventRecord(fresh, a));
  SHOW(cuEventRecordWithFlags(fresh, a, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuEventQuery(fresh));
  info(a);
  end(a);
  SHOW(cuEventQuery(fresh));
  SHOW(cuStreamBeginCapture(a, kRelaxed));
  SHOW(cuEventRecord(fresh, a));
  SHOW(cuEventRecord(fresh, b));
  SHOW(cuEventSynchronize(fresh));
  SHOW(cuStreamWaitEvent(a, fresh, 0));
  end(a);
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuEventRecord(fresh, a));
  SHOW(cuEventDestroy(fresh));
  info(a);
  end(a);
  NEED(cuEventDestroy(never));
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuMemAlloc(&memory, kBytes));
  beginnings();
  default_streams();
  forks();
  events();
  invalid();
  modes();
  graphs();
  kinds();
  return 0;
}
