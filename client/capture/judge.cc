// What becomes of calls while streams are captured.
#include <algorithm>

#include "client/capture/capture_state.h"
#include "client/entry/call_target.h"

namespace fargpu::client::capture {
namespace {

bool is_in(const Capture& capture, const Context* context) {
  return std::any_of(capture.members.begin(), capture.members.end(),
                     [&](const auto& each) { return each.second.context == context; });
}

// Ends those for which `stands_in_way()`; false: there are none.
template <typename StandsInWay>
bool invalidate_if(StandsInWay stands_in_way) {
  bool found = false;
  for (const auto& capture : all().captures) {
    if (!stands_in_way(*capture)) continue;
    capture->active = false;
    found = true;
  }
  return found;
}

CUresult unsafe() {
  const CUstreamCaptureMode own = thread_mode();
  if (own == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const Lock lock;
  const bool found = invalidate_if([&](const Capture& capture) {
    if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    return capture.thread == this_thread() ||
           (capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own == CU_STREAM_CAPTURE_MODE_GLOBAL);
  });
  return found ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult forbidden_in(const Context* context) {
  const Lock lock;
  const bool found = invalidate_if([&](const Capture& capture) { return is_in(capture, context); });
  return found ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult implicit_in(const Context* context) {
  const Lock lock;
  const bool found =
      invalidate_if([&](const Capture& capture) { return is_blocked(capture, context); });
  return found ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

bool has_place(CUevent handle) {
  const Event* const event = any_event() ? find_event(handle) : nullptr;
  const std::lock_guard lock(all().mutex);
  return event != nullptr && event->place != nullptr;
}

CUresult judge_in_stream(Class of_call, const Named& stream) {
  switch (of_call) {
    case Class::kCaptured:
    case Class::kCapturedUnsafe: {
      const Lock lock;
      const Capture* const capture = of(stream);
      return capture == nullptr || capture->active ? CUDA_SUCCESS
                                                   : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    case Class::kFree:
      return CUDA_SUCCESS;
    case Class::kRefused:
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    default: {
      const Lock lock;
      if (Capture* const capture = of(stream)) capture->active = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
}

}  // namespace

bool ends_in_green(const Context* green) {
  const Lock lock;
  return invalidate_if([&](const Capture& capture) {
    return std::any_of(capture.members.begin(), capture.members.end(), [&](const auto& each) {
      return green_of(reinterpret_cast<CUstream>(each.first)) == green;
    });
  });
}

CUstreamCaptureMode& thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

Judgement judge(Class of_call, const void* operand) {
  if (of_call == Class::kUnsafe) {
    // An event that has a place in a capture is refused for that.
    const auto event = static_cast<CUevent>(const_cast<void*>(operand));
    return {event != nullptr && has_place(event) ? CUDA_SUCCESS : unsafe()};
  }
  if (of_call == Class::kForbiddenEverywhere)
    return {forbidden_in(operand == nullptr ? current_context() : context_of_handle(operand))};
  Named stream;
  // The call says what is wrong.
  if (find(static_cast<CUstream>(const_cast<void*>(operand)), &stream) != CUDA_SUCCESS) return {};
  if (stream.is_legacy() && of_call != Class::kRefused) {
    const CUresult result = implicit_in(stream.context);
    if (result != CUDA_SUCCESS) return {result};
  } else if (stream.is_captured()) {
    return {judge_in_stream(of_call, stream),
            of_call == Class::kCaptured || of_call == Class::kCapturedUnsafe};
  }
  const bool is_unsafe = of_call == Class::kCapturedUnsafe || of_call == Class::kForbiddenUnsafe;
  return {is_unsafe ? unsafe() : CUDA_SUCCESS};
}

}  // namespace fargpu::client::capture
