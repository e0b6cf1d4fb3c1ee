// Events that have a place in a capture.
#include "client/capture/capture_state.h"

namespace fargpu::client::capture {

CUresult record(CUevent event, CUstream handle) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  Position position;
  {
    const Lock lock;
    const Capture* const capture = of(stream);
    if (capture == nullptr || !capture->active) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    position = capture->members.at(stream.id).position;
  }
  return record_at(event, handle, position);
}

CUresult record_at(CUevent handle, CUstream stream_handle, const Position& position) {
  Named stream;
  if (const CUresult result = find(stream_handle, &stream); result != CUDA_SUCCESS) return result;
  Event* const event = find_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Lock lock;
  const Capture* const capture = of(stream);
  if (capture == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->place = std::make_shared<CapturedPlace>(capture->id, position);
  return CUDA_SUCCESS;
}

void note_record(Event& event) {
  if (!event.recorded.load(std::memory_order_relaxed)) event.recorded = true;
  event.functions.set(FunctionsAhead::kAll);
  if (!any_event()) [[likely]]
    return;
  const std::lock_guard lock(all().mutex);
  event.place.reset();
}

void note_record(CUevent handle) {
  if (Event* const event = find_event(handle)) note_record(*event);
}

CUresult wait(CUstream handle, CUevent event_handle) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  const Event* const event = find_event(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Lock lock;
  Capture* const own = of(stream);
  if (own == nullptr || !own->active) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (event->place == nullptr) {
    // A wait for an event that has not been recorded has no effect.
    if (!event->recorded.load()) return CUDA_SUCCESS;
    own->active = false;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  Capture* const other = with_id(event->place->capture);
  if (other == nullptr || !other->active) {
    own->active = false;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (other != own) {
    own->active = other->active = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  own->members.at(stream.id).position.add(event->place->position);
  return CUDA_SUCCESS;
}

std::optional<CUresult> join(CUstream handle, CUevent event_handle) {
  const Event* const event = find_event(event_handle);
  if (event == nullptr) return std::nullopt;
  Named stream;
  if (find(handle, &stream) != CUDA_SUCCESS) return std::nullopt;
  const Lock lock;
  if (event->place == nullptr) return std::nullopt;
  Capture* const capture = with_id(event->place->capture);
  if (capture == nullptr || !capture->active) return CUDA_ERROR_INVALID_VALUE;
  if (stream.is_legacy()) {
    capture->active = false;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  capture->members[stream.id] = {stream.context, stream.state, event->place->position};
  stream.state->capture.store(capture->id);
  return CUDA_SUCCESS;
}

CUresult check_event(CUevent handle, bool ends) {
  const Event* const event = find_event(handle);
  if (event == nullptr) return CUDA_SUCCESS;
  const Lock lock;
  if (event->place == nullptr) return CUDA_SUCCESS;
  Capture* const capture = with_id(event->place->capture);
  if (capture == nullptr || !capture->active) return CUDA_ERROR_INVALID_VALUE;
  if (ends) capture->active = false;
  return CUDA_ERROR_CAPTURED_EVENT;
}

}  // namespace fargpu::client::capture
