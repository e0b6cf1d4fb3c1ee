#include "client/timeline/frames.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

namespace fargpu::client::timeline {

using wire::TimelineKind;
using wire::TimelineRecord;

uint64_t Frames::now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

void Frames::sends(const wire::FrameHeader& header) {
  const std::lock_guard lock(mutex_);
  const bool asks = (header.flags & wire::kWantReply) != 0;
  noted_ += asks ? 2 : 1;  // an answer may come later, and is a record then
  if (frames_.size() == most_) {
    ++dropped_;
    return;
  }
  try {
    frames_.push_back(
        {.sequence = header.sequence, .opcode = header.opcode, .asks = asks, .sent = now()});
  } catch (const std::bad_alloc&) {
    ++dropped_;  // the channel is in the middle of a call
  }
}

void Frames::receives(const wire::FrameHeader& request) {
  const uint64_t time = now();
  const std::lock_guard lock(mutex_);
  if (Frame* const frame = find(request.sequence); frame != nullptr) frame->seen = time;
}

size_t Frames::noted_since_match() const {
  const std::lock_guard lock(mutex_);
  return noted_;
}

uint64_t Frames::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

// Numbers wrap: they count from the first one's.
Frames::Frame* Frames::find(uint32_t sequence) {
  if (frames_.empty()) return nullptr;
  const uint32_t first = frames_.front().sequence;
  const auto place =
      std::ranges::lower_bound(frames_, sequence - first, {},
                               [first](const Frame& frame) { return frame.sequence - first; });
  return place != frames_.end() && place->sequence == sequence ? &*place : nullptr;
}

// No work of the worker begins before its frame was sent, and no answer is seen before it was made.
int64_t Frames::correction(std::span<const TimelineRecord> records, const ClockRelation& clocks) {
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;  // may be added up
  int64_t at_least = -kMost, at_most = kMost;
  for (const TimelineRecord& record : records) {
    const Frame* const frame =
        record.kind == TimelineKind::kPosted ? nullptr : find(record.sequence);
    if (frame == nullptr) continue;
    const auto later = [](uint64_t a, uint64_t b) {  // by how much
      return std::clamp(static_cast<int64_t>(a - b), -kMost, kMost);
    };
    at_least = std::max(at_least, later(frame->sent, clocks.to_ours(record.begin)));
    if (frame->seen != 0 && record.kind != TimelineKind::kFrame)
      at_most = std::min(at_most, later(frame->seen, clocks.to_ours(record.end)));
  }
  return least_correction(at_least, at_most);
}

std::vector<Slice> Frames::match(std::span<const TimelineRecord> records,
                                 const ClockRelation& clocks) {
  const std::lock_guard lock(mutex_);
  noted_ = 0;
  std::vector<Slice> slices;
  const auto move = static_cast<uint64_t>(correction(records, clocks));
  uint32_t last = 0;
  for (const TimelineRecord& record : records) {
    uint64_t begin = clocks.to_ours(record.begin) + move;
    uint64_t end = std::max(begin, clocks.to_ours(record.end) + move);
    const bool posted = record.kind == TimelineKind::kPosted;
    Frame* const frame = posted ? nullptr : find(record.sequence);
    if (record.kind != TimelineKind::kLater) {
      // What is corrected otherwise than the records of the last time might overlap with them.
      uint64_t& lane_end = lane_ends_[posted ? 1 : 0];
      begin = std::max(begin, lane_end);
      end = std::max(begin, end);
      lane_end = end;
      slices.push_back(
          {posted ? Lane::kPosted : Lane::kFrames, record.opcode, record.sequence, begin, end});
      if (!posted) last = record.sequence;
    }
    if (frame == nullptr) continue;
    if (record.kind == TimelineKind::kLater) {
      frame->answered = begin;
      continue;
    }
    slices.push_back({Lane::kRequest, frame->opcode, frame->sequence, frame->sent, begin});
    frame->begun = begin;
    frame->done = end;
    if (record.kind == TimelineKind::kAnswered) frame->answered = end;
  }
  for (Frame& frame : frames_) {
    if (frame.done == 0 || frame.answered == 0 || frame.seen == 0) continue;
    if (frame.answered > frame.done)
      slices.push_back({Lane::kWaits, frame.opcode, frame.sequence, frame.done, frame.answered});
    slices.push_back({Lane::kAnswer, frame.opcode, frame.sequence, frame.answered, frame.seen});
    frame.asks = false;  // nothing more of it is to come
  }
  if (last != 0) forget_until(last);
  return slices;
}

// Those whose answer is still to come stay.
void Frames::forget_until(uint32_t sequence) {
  if (frames_.empty()) return;
  const uint32_t first = frames_.front().sequence;
  constexpr uint32_t kBefore = 1u << 31;  // it came before the first one
  if (sequence - first >= kBefore) return;
  std::erase_if(frames_, [&](const Frame& frame) {
    const bool gone = frame.sequence - first <= sequence - first;
    return gone && !(frame.asks && frame.done != 0);
  });
}

}  // namespace fargpu::client::timeline
