#include "server/stream/copy_fences.h"

#include <algorithm>

#include "generated/server/driver_table.h"
#include "server/stream/stream_events.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kLegacy = 1;

}  // namespace

CopyFences::Key CopyFences::key_of(const Stream& stream) {
  if (stream.id > kPerThreadStreamId) return {stream.id, 0};
  return {stream.id == 0 ? kLegacy : stream.id, stream.context};
}

CUresult CopyFences::add(const Stream& stream, bool returned) {
  const Key key = key_of(stream);
  const auto is_here = [&key](const Fence& fence) { return fence.key == key; };
  // The older of two keeps its event: it goes however often the newer one is recorded again.
  const auto older = std::find_if(fences_.begin(), fences_.end(), is_here);
  const auto newer =
      older == fences_.end() ? older : std::find_if(older + 1, fences_.end(), is_here);
  if (newer != fences_.end()) {
    const CUresult result = events_.record(newer->stream.context, stream.handle, &newer->event);
    if (result != CUDA_SUCCESS) return result;
    newer->last = ++newest_;
    if (returned && !newer->returned) ++returned_;
    newer->returned |= returned;
    return CUDA_SUCCESS;
  }
  CUevent event = nullptr;
  if (const CUresult result = events_.record(stream.context, stream.handle, &event);
      result != CUDA_SUCCESS) {
    return result;
  }
  ++newest_;
  fences_.push_back({stream, key, returned, newest_, newest_, event});
  returned_ += returned ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult CopyFences::wait_for_all(const Stream& stream) {
  const Key key = key_of(stream);
  uint64_t& passed = seen_[key].passed;
  if (passed == newest_) return CUDA_SUCCESS;
  for (size_t i = 0; i < fences_.size();) {
    const Fence& fence = fences_[i];
    if (fence.last <= passed || comes_after(stream, key, fence)) {
      ++i;
    } else if (is_over(fence)) {
      drop(i);
    } else {
      const CUresult result = events_.wait(stream.handle, fence.event);
      if (result != CUDA_SUCCESS) return result;
      ++i;
    }
  }
  passed = newest_;
  if (fences_.empty()) seen_.clear();
  return CUDA_SUCCESS;
}

bool CopyFences::comes_after(const Stream& stream, const Key& key, const Fence& fence) {
  if (key == fence.key) return true;
  if (stream.context != fence.stream.context) return false;
  if (fence.key.id == kLegacy) return is_blocking(stream, key);
  return key.id == kLegacy && is_blocking(fence.stream, fence.key);
}

bool CopyFences::is_blocking(const Stream& stream, const Key& key) {
  if (stream.id <= kPerThreadStreamId || stream.handle == nullptr ||
      driver_.cuStreamGetFlags == nullptr)
    return false;
  Seen::Blocking& known = seen_[key].blocking;
  if (known == Seen::Blocking::kUnknown) {
    unsigned flags = CU_STREAM_NON_BLOCKING;
    const bool answered = driver_.cuStreamGetFlags(stream.handle, &flags) == CUDA_SUCCESS;
    known = answered && (flags & CU_STREAM_NON_BLOCKING) == 0 ? Seen::Blocking::kYes
                                                              : Seen::Blocking::kNo;
  }
  return known == Seen::Blocking::kYes;
}

// Also with the error of a context that has failed: the bytes will never be there.
bool CopyFences::is_over(const Fence& fence) {
  return driver_.cuEventQuery(fence.event) != CUDA_ERROR_NOT_READY;
}

void CopyFences::drop_what_is_over() {
  for (size_t i = 0; i < fences_.size();) {
    if (is_over(fences_[i])) {
      drop(i);
    } else {
      ++i;
    }
  }
  if (fences_.empty()) seen_.clear();
}

bool CopyFences::stands(uint64_t number, Which which) {
  poll();
  return std::any_of(fences_.begin(), fences_.end(), [number, which](const Fence& fence) {
    return (fence.returned || which == Which::kAll) && fence.first <= number;
  });
}

void CopyFences::drop(size_t index) {
  const Fence& fence = fences_[index];
  returned_ -= fence.returned ? 1 : 0;
  events_.give_back(fence.stream.context, fence.event);
  fences_.erase(fences_.begin() + static_cast<ptrdiff_t>(index));
}

void CopyFences::stream_ended(const ObjectEnd& end) {
  for (Fence& fence : fences_) {
    if (fence.stream.id != end.id) continue;
    fence.stream.handle = nullptr;
    fence.key = {};  // no stream's: another one may get this id
  }
  seen_.erase({end.id, 0});
}

void CopyFences::context_ended(const ContextEnd& end) {
  for (size_t i = fences_.size(); i-- > 0;) {
    if (fences_[i].stream.context == end.id) drop(i);
  }
  seen_.clear();
}

}  // namespace fargpu::server
