// Events.
#include <chrono>
#include <thread>

#include "sim/context/event.h"
#include "sim/context/green_context.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// For calls about one event that need no current context: body(Event&, Context& of the event).
template <typename Body>
CUresult with_event(CUevent handle, Body&& body) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto event = driver.registry().find<Event>(handle);
    auto context = event ? event->context.lock() : nullptr;
    if (!context || !context->alive()) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult result = context->error(); result != CUDA_SUCCESS) return result;
    return body(*event, *context);
  });
}

}  // namespace

CUresult CUDAAPI cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return with_context([&](Context& context) -> CUresult {
    if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    const bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
    if (shared && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>(context.weak_from_this(), Flags);
    if (shared) {
      auto made = SharedEvent::create();
      if (!made.ok()) return CUDA_ERROR_OPERATING_SYSTEM;
      event->shared = std::make_shared<SharedEvent>(std::move(*made));
    }
    *phEvent = to_handle<CUevent>(Driver::get().registry().add(std::move(event), context.id()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return with_stream(
      hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL)
          return CUDA_ERROR_INVALID_VALUE;
        const bool external = flags == CU_EVENT_RECORD_EXTERNAL;
        auto event = Driver::get().registry().find<Event>(hEvent);
        if (!event || event->context.lock().get() != &context) return CUDA_ERROR_INVALID_HANDLE;
        const auto captured = if_captured(context, stream, [&](Capture& capture) -> CUresult {
          if (external) {
            CUgraphNodeParams params{};
            params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
            params.eventRecord.event = hEvent;
            return capture.add(*stream, params, {});
          }
          if (event->shared) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
          auto place = capture.place(*stream);
          std::lock_guard lock(event->mutex);
          event->captured = std::move(place);
          return CUDA_SUCCESS;
        });
        if (captured) return *captured;
        if (external) return CUDA_ERROR_ILLEGAL_STATE;  // for captures only
        context.submit_made(stream, [&](const Fence& done) { return event->begin_record(done); });
        return CUDA_SUCCESS;
      });
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream) {
  return cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent) {
  return with_event(hEvent, [](Event& event, Context& context) -> CUresult {
    if (const auto place = event.place()) return asked_place(*place, true);
    if (event.shared) {
      return event.shared->is_reached(event.shared->newest()) ? context.error()
                                                              : CUDA_ERROR_NOT_READY;
    }
    const auto record = event.latest();
    if (record && pending(record->fence)) return CUDA_ERROR_NOT_READY;
    return context.error();
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  return with_event(hEvent, [](Event& event, Context& context) -> CUresult {
    if (const auto place = event.place()) return asked_place(*place, true);
    if (event.shared) {
      event.shared->wait(event.shared->newest());
    } else if (const auto record = event.latest()) {
      record->fence->wait();
    }
    context.output().flush();
    return context.error();
  });
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent) {
  return with_driver([&](Driver& driver) -> CUresult {
    return driver.registry().remove<Event>(hEvent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

CUresult CUDAAPI cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // as the driver answers
    auto start = driver.registry().find<Event>(hStart);
    auto end = driver.registry().find<Event>(hEnd);
    if (!start || !end || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    for (const auto& event : {start, end})
      if (const auto place = event->place()) return asked_place(*place, false);
    auto context = start->context.lock();
    if (!context || end->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult result = context->error(); result != CUDA_SUCCESS) return result;
    const auto first = start->latest(), last = end->latest();
    if (!first || !last) return CUDA_ERROR_INVALID_HANDLE;
    if (pending(first->fence) || pending(last->fence)) return CUDA_ERROR_NOT_READY;
    *pMilliseconds =
        static_cast<float>(static_cast<double>(last->nanoseconds - first->nanoseconds) * 1e-6);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto context = find_context(hCtx);
    if (!context || !context->alive()) return CUDA_ERROR_INVALID_CONTEXT;
    auto event = driver.registry().find<Event>(hEvent);
    if (!event || event->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    const auto green = driver.registry().find<GreenContext>(hCtx);
    context->submit_after_all([&](const Fence& done) { return event->begin_record(done); },
                              green.get());
    return context->error();
  });
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto context = find_context(hCtx);
    if (!context || !context->alive()) return CUDA_ERROR_INVALID_CONTEXT;
    auto event = driver.registry().find<Event>(hEvent);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    const auto green = driver.registry().find<GreenContext>(hCtx);
    if (event->shared) {
      const uint64_t newest = event->shared->newest();
      if (event->shared->is_reached(newest)) return context->error();
      auto reached = std::make_shared<Completion>();
      std::thread([shared = event->shared, newest, reached] {
        shared->wait(newest);
        reached->complete();
      }).detach();
      context->gate(reached, green.get());
    } else if (const auto record = event->latest(); record && pending(record->fence)) {
      context->gate(record->fence, green.get());
    }
    return context->error();
  });
}
