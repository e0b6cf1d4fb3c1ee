// A worker's records for a timeline of its client: records, as they travel (fgTimelineTake).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fargpu::wire {

enum class TimelineKind : uint16_t {
  kFrame = 0,     // a frame, from the moment the executor began it until it was done with it
  kAnswered = 1,  // the same; the end is when its answer was given to the transport
  kLater = 2,     // an answer that came after its frame's record; begin and end are the same
  kPosted = 3,    // work between frames: operations that waited for the GPU or another thread
};
inline constexpr uint16_t kTimelineKinds = 4;

// Times are nanoseconds of the worker's monotonic clock.
struct TimelineRecord {
  uint64_t begin = 0, end = 0;
  uint32_t sequence = 0;  // of the frame; 0: of none
  uint16_t opcode = 0;    // the same
  TimelineKind kind = TimelineKind::kFrame;
};
static_assert(sizeof(TimelineRecord) == 24);

// The most records that a worker keeps: 24 MiB.
inline constexpr uint64_t kMostTimelineRecords = 1u << 20;

}  // namespace fargpu::wire
