#include "sim/context/capture.h"

#include <algorithm>

#include "sim/context/context.h"
#include "sim/context/current.h"
#include "sim/context/event.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

bool& beside_captures() {
  thread_local bool beside = false;
  return beside;
}

// The stream of a call that says nothing about captures; nullptr: there is none.
std::shared_ptr<Stream> stream_of(CUstream handle) {
  if (!Driver::initialized()) return nullptr;
  std::shared_ptr<Context> context, owner;
  std::shared_ptr<Stream> stream;
  // Without a current context there are only the streams that were created.
  if (current_context(&context) != CUDA_SUCCESS && !Driver::get().registry().find<Stream>(handle))
    return nullptr;
  return find_stream(context, handle, &owner, &stream) == CUDA_SUCCESS ? stream : nullptr;
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

Capture::Capture(CUstreamCaptureMode mode)
    : id(next_id()), mode(mode), thread(this_thread_number()) {}

Captures& Captures::get() {
  static auto* captures = new Captures;  // never destroyed: threads may outlive main
  return *captures;
}

void Captures::add(std::shared_ptr<Capture> capture) {
  list_.push_back(std::move(capture));
  count_.store(list_.size(), std::memory_order_release);
}

void Captures::remove(Capture& capture) {
  capture.valid = false;
  std::erase_if(list_, [&](const auto& other) { return other.get() == &capture; });
  count_.store(list_.size(), std::memory_order_release);
}

void Captures::remove_of(const Context& context) {
  const auto list = list_;
  for (const auto& capture : list) {
    const auto in_context = [&](const auto& stream) {
      return stream->context.lock().get() == &context;
    };
    if (std::ranges::any_of(capture->streams, in_context)) capture->valid = false;
    if (in_context(capture->streams.front())) remove(*capture);
  }
}

std::shared_ptr<Capture> Captures::of(const Stream& stream) const {
  for (const auto& capture : list_) {
    for (const auto& taking_part : capture->streams) {
      if (taking_part.get() == &stream) return capture;
    }
  }
  return nullptr;
}

bool Captures::blocking(const Context& context, bool ends) const {
  bool found = false;
  for (const auto& capture : list_) {
    const bool waited_for = std::ranges::any_of(capture->streams, [&](const auto& stream) {
      return stream->blocking() && stream->context.lock().get() == &context;
    });
    found = found || waited_for;
    if (waited_for && ends) capture->valid = false;
  }
  return found;
}

bool Captures::of_green(const GreenContext& green, bool ends) const {
  bool found = false;
  for (const auto& capture : list_) {
    for (const auto& stream : capture->streams) {
      if (stream->green.get() != &green) continue;
      found = true;
      if (ends) capture->valid = false;
    }
  }
  return found;
}

CUresult Captures::unsafe(CUevent handle) {
  if (!any()) return CUDA_SUCCESS;
  const auto event = handle == nullptr ? nullptr : Driver::get().registry().find<Event>(handle);
  if (event && event->place()) return CUDA_SUCCESS;
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const uint64_t thread = this_thread_number();
  std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : list_) {
    const bool own = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult Captures::unsafe_or_legacy(CUstream handle) {
  const CUresult result = legacy(handle);
  return result == CUDA_SUCCESS ? unsafe() : result;
}

CUresult Captures::forbidden(CUstream handle, bool ends) {
  if (!any()) return CUDA_SUCCESS;
  const auto stream = stream_of(handle);
  if (!stream) return CUDA_SUCCESS;  // the call itself says what is wrong
  if (ends && stream->role == StreamRole::kLegacy) return legacy(handle);
  std::lock_guard lock(mutex_);
  const auto capture = of(*stream);
  if (!capture) return CUDA_SUCCESS;
  if (ends) capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::forbidden_everywhere() {
  if (!any()) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  for (const auto& capture : list_) capture->valid = false;
  return list_.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::implicit() {
  std::shared_ptr<Context> context;
  if (!any() || current_context(&context) != CUDA_SUCCESS) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  return blocking(*context, true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult Captures::legacy(CUstream handle) {
  if (!any()) return CUDA_SUCCESS;
  const auto stream = stream_of(handle);
  return stream && stream->role == StreamRole::kLegacy ? implicit() : CUDA_SUCCESS;
}

bool Captures::captured(CUstream handle) {
  if (!any()) return false;
  const auto stream = stream_of(handle);
  std::lock_guard lock(mutex_);
  return stream && of(*stream) != nullptr;
}

std::optional<CUresult> if_captured(const Context& context, const std::shared_ptr<Stream>& stream,
                                    const std::function<CUresult(Capture&)>& action) {
  Captures& captures = Captures::get();
  if (!captures.any() || beside_captures()) return std::nullopt;
  std::lock_guard lock(captures.mutex());
  if (stream->role == StreamRole::kLegacy) {
    if (!captures.blocking(context, true)) return std::nullopt;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const auto capture = captures.of(*stream);
  if (!capture) return std::nullopt;
  return capture->valid ? action(*capture) : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

std::optional<CUresult> capture_node(const Context& context, const std::shared_ptr<Stream>& stream,
                                     CUgraphNodeType type,
                                     const std::function<void(CUgraphNodeParams&)>& fill,
                                     std::span<const CUlaunchAttribute> attributes) {
  return if_captured(context, stream, [&](Capture& capture) {
    CUgraphNodeParams params{};
    params.type = type;
    fill(params);
    return capture.add(*stream, params, attributes);
  });
}

std::optional<CUresult> captured_wait(const Context& context, const std::shared_ptr<Stream>& stream,
                                      Event& event) {
  Captures& captures = Captures::get();
  const auto place = event.place();
  if (!captures.any() && !place) return std::nullopt;
  std::lock_guard lock(captures.mutex());
  const bool legacy = stream->role == StreamRole::kLegacy;
  if (legacy && captures.blocking(context, true)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const auto own = captures.of(*stream);
  if (own && !own->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!place) {
    if (!own || !event.latest()) return std::nullopt;
    own->valid = false;  // it would wait for work outside the graph
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  const auto other = place->capture.lock();
  const bool over = !other || captures.of(*other->streams.front()) != other;
  if (over || !other->valid) {
    if (own) own->valid = false;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (legacy) {
    other->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (own && own != other) {
    own->valid = other->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  other->join(stream, *place);
  return CUDA_SUCCESS;
}

CUresult asked_place(const CapturedPlace& place, bool ends) {
  Captures& captures = Captures::get();
  std::lock_guard lock(captures.mutex());
  const auto capture = place.capture.lock();
  if (!capture || !capture->valid) return CUDA_ERROR_INVALID_VALUE;
  if (ends) capture->valid = false;
  return CUDA_ERROR_CAPTURED_EVENT;
}

void end_captures_of(const Stream& stream) {
  Captures& captures = Captures::get();
  if (!captures.any()) return;
  std::lock_guard lock(captures.mutex());
  const auto capture = captures.of(stream);
  if (!capture) return;
  if (capture->streams.front().get() == &stream) {
    captures.remove(*capture);
  } else {
    std::erase_if(capture->streams, [&](const auto& other) { return other.get() == &stream; });
  }
}

void end_captures_of(const Context& context) {
  Captures& captures = Captures::get();
  if (!captures.any()) return;
  std::lock_guard lock(captures.mutex());
  captures.remove_of(context);
}

BesideCaptures::BesideCaptures() { beside_captures() = true; }
BesideCaptures::~BesideCaptures() { beside_captures() = false; }

}  // namespace fargpu::sim
