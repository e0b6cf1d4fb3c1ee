// Streams: creation, order, synchronisation, host functions.
#include <algorithm>

#include "sim/context/capture.h"
#include "sim/context/event.h"
#include "sim/context/green_context.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

// For questions about a stream that must not disturb it: body(Context&, Stream&).
template <typename Body>
CUresult ask_stream(CUstream handle, Body&& body) {
  return with_stream(handle,
                     [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
                       return body(context, *stream);
                     });
}

}  // namespace

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return with_context([&](Context& context) -> CUresult {
    if (phStream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (current_green()) flags |= CU_STREAM_NON_BLOCKING;
    // Seen on an H200 with driver 580, now and then.
    if (Driver::get().settings().stream_waits) wait_for_host_functions();
    auto stream =
        context.create_stream(flags, std::clamp(priority, kGreatestPriority, 0), current_green());
    *phStream = to_handle<CUstream>(Driver::get().registry().add(std::move(stream), context.id()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  return with_context_of(hStream, [&](Context&) -> CUresult {
    const auto known = Driver::get().registry().find<Stream>(hStream);
    if (known && known->green && !known->green->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    auto stream = Driver::get().registry().remove<Stream>(hStream);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    end_captures_of(*stream);
    if (auto owner = stream->context.lock()) owner->forget_stream(stream);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }

CUresult CUDAAPI cuStreamGetPriority(CUstream hStream, int* priority) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *streamId = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return ask_stream(hStream, [&](Context& context, Stream& stream) -> CUresult {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = stream.green ? to_handle<CUcontext>(stream.green->handle) : context.handle();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return ask_stream(hStream, [&](Context& context, Stream& stream) -> CUresult {
    if (pCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pCtx = context.handle();
    if (pGreenCtx != nullptr)
      *pGreenCtx = stream.green ? to_handle<CUgreenCtx>(stream.green->handle) : nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *phCtx = stream.green ? to_handle<CUgreenCtx>(stream.green->handle) : nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return ask_stream(hStream, [&](Context& context, Stream&) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device().ordinal();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return with_stream(hStream,
                     [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
                       if (Flags != CU_EVENT_WAIT_DEFAULT && Flags != CU_EVENT_WAIT_EXTERNAL)
                         return CUDA_ERROR_INVALID_VALUE;
                       auto event = Driver::get().registry().find<Event>(hEvent);
                       if (!event) return CUDA_ERROR_INVALID_HANDLE;
                       if (Flags == CU_EVENT_WAIT_EXTERNAL) {
                         const auto place = event->place();
                         const CUresult judged = place ? asked_place(*place, false) : CUDA_SUCCESS;
                         if (judged == CUDA_ERROR_INVALID_VALUE) {
                           const auto ended = if_captured(context, stream, [](Capture& capture) {
                             capture.valid = false;
                             return CUDA_ERROR_INVALID_VALUE;
                           });
                           return ended.value_or(judged);
                         }
                         const auto captured =
                             capture_node(context, stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                          [&](auto& params) { params.eventWait.event = hEvent; });
                         return captured.value_or(CUDA_ERROR_ILLEGAL_STATE);  // captures only
                       }
                       if (const auto captured = captured_wait(context, stream, *event))
                         return *captured;
                       if (const auto shared = event->shared) {
                         const uint64_t newest = shared->newest();
                         if (!shared->is_reached(newest))
                           context.submit(stream, [shared, newest] { shared->wait(newest); });
                         return CUDA_SUCCESS;
                       }
                       const auto record = event->latest();
                       if (record && pending(record->fence))
                         context.submit(stream, [] {}, {record->fence});
                       return CUDA_SUCCESS;
                     });
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream) {
  return with_stream(hStream,
                     [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
                       if (!context.outstanding(stream).empty()) return CUDA_ERROR_NOT_READY;
                       return context.error();
                     });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) {
  return with_stream(hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) {
    return context.synchronize(stream);
  });
}

// Not called in a context that failed, as the driver does it.
CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return with_stream(
      hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto captured =
            capture_node(context, stream, CU_GRAPH_NODE_TYPE_HOST, [&](auto& params) {
              params.host = {fn, userData};
            });
        if (captured) return *captured;
        context.submit_host_function(stream, [owner = context.shared_from_this(), fn, userData] {
          if (owner->error() != CUDA_SUCCESS) return;
          const HostFunctionScope scope;
          fn(userData);
        });
        return CUDA_SUCCESS;
      });
}

CUresult CUDAAPI cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                     unsigned int flags) {
  return with_stream(
      hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        context.submit_host_function(
            stream, [owner = context.shared_from_this(), hStream, callback, userData] {
              const HostFunctionScope scope;
              callback(hStream, owner->error(), userData);
            });
        return CUDA_SUCCESS;
      });
}

CUresult CUDAAPI cuStreamCopyAttributes(CUstream dst, CUstream src) {
  return with_context_of(dst, [&](Context& context) -> CUresult {
    std::shared_ptr<Context> owner;
    std::shared_ptr<Stream> from, to;
    const auto current = context.shared_from_this();
    if (CUresult result = find_stream(current, src, &owner, &from); result != CUDA_SUCCESS)
      return result;
    if (CUresult result = find_stream(current, dst, &owner, &to); result != CUDA_SUCCESS)
      return result;
    if (from == to) return CUDA_SUCCESS;
    std::scoped_lock lock(from->attributes_mutex, to->attributes_mutex);
    to->sync_policy = from->sync_policy;
    to->mem_sync_domain = from->mem_sync_domain;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr,
                                      CUstreamAttrValue* value_out) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (value_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(stream.attributes_mutex);
    *value_out = CUstreamAttrValue{};
    switch (static_cast<int>(attr)) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value_out->syncPolicy = stream.sync_policy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value_out->priority = stream.priority;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult CUDAAPI cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                                      const CUstreamAttrValue* value) {
  return ask_stream(hStream, [&](Context&, Stream& stream) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(stream.attributes_mutex);
    switch (static_cast<int>(attr)) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
            value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        stream.sync_policy = value->syncPolicy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return CUDA_SUCCESS;  // hints
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}
