#include "server/core/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

namespace fargpu::server {

using wire::TimelineKind;
using wire::TimelineRecord;

uint64_t Timeline::now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

bool Timeline::start(uint64_t records) {
  if (on() || records == 0 || records > wire::kMostTimelineRecords) return false;
  ring_.reset(new (std::nothrow) TimelineRecord[records]);
  room_ = records;
  return on();
}

void Timeline::begin_frame(const wire::FrameHeader& header) {
  in_frame_ = true;
  frame_ = {.begin = now(), .sequence = header.sequence, .opcode = header.opcode};
}

void Timeline::end_frame() {
  in_frame_ = false;
  if (frame_.kind == TimelineKind::kFrame) frame_.end = now();
  add(frame_);
}

void Timeline::posted(uint64_t begin) {
  add({.begin = begin, .end = now(), .kind = TimelineKind::kPosted});
}

void Timeline::sends(const wire::FrameHeader& reply) {
  const uint64_t time = now();
  if (in_frame_ && reply.sequence == frame_.sequence) {
    frame_.end = time;
    frame_.kind = TimelineKind::kAnswered;
  } else {
    add({time, time, reply.sequence, reply.opcode, TimelineKind::kLater});
  }
}

size_t Timeline::take(std::span<std::byte> out) {
  const size_t count = std::min(out.size() / sizeof(TimelineRecord), size_);
  const size_t until_end = std::min(count, room_ - first_);
  if (count > 0) {
    std::memcpy(out.data(), ring_.get() + first_, until_end * sizeof(TimelineRecord));
    std::memcpy(out.data() + until_end * sizeof(TimelineRecord), ring_.get(),
                (count - until_end) * sizeof(TimelineRecord));
    first_ = (first_ + count) % room_;
    size_ -= count;
  }
  return count;
}

void Timeline::add(const TimelineRecord& record) {
  if (size_ == room_) {
    ++dropped_;
    return;
  }
  ring_[(first_ + size_) % room_] = record;
  ++size_;
}

}  // namespace fargpu::server
