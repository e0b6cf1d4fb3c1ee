// The frames of one session in the client, joined with the worker's records: slices of its lanes.
// Any thread; the lock is held for no wait.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "client/timeline/clock_relation.h"
#include "common/rpc/frame_observer.h"
#include "common/wire/timeline_record.h"

namespace fargpu::client::timeline {

enum class Lane : uint8_t {
  kFrames,   // the executor's: slices do not overlap
  kPosted,   // its work between frames: the same
  kRequest,  // from when a frame was given to the transport until the worker began it
  kWaits,    // from the end of the executor's part until the answer was known
  kAnswer,   // from when the answer was given to the transport until it was seen here
};

// Times are nanoseconds of our monotonic clock.
struct Slice {
  Lane lane = Lane::kFrames;
  uint16_t opcode = 0;    // 0: of no frame
  uint32_t sequence = 0;  // the same
  uint64_t begin = 0, end = 0;
};

class Frames final : public rpc::FrameObserver {
 public:
  // Keeps at most so many frames of which the worker's records have not come.
  explicit Frames(size_t most) : most_(most) {}

  // Nanoseconds of the monotonic clock.
  static uint64_t now();
  void sends(const wire::FrameHeader& header) override;
  void receives(const wire::FrameHeader& request) override;

  // How many records the worker has at least, when it has them of all frames.
  size_t noted_since_match() const;
  // Records in the worker's order, following the last call's.
  std::vector<Slice> match(std::span<const wire::TimelineRecord> records,
                           const ClockRelation& clocks);
  // Frames that were left out because there were `most`.
  uint64_t dropped() const;

 private:
  struct Frame {
    uint32_t sequence;
    uint16_t opcode;
    bool asks;
    uint64_t sent, seen = 0;                     // seen 0: not yet
    uint64_t begun = 0, done = 0, answered = 0;  // by the worker; 0: not yet
  };
  Frame* find(uint32_t sequence);
  int64_t correction(std::span<const wire::TimelineRecord> records, const ClockRelation& clocks);
  void forget_until(uint32_t sequence);

  const size_t most_;
  mutable std::mutex mutex_;
  std::deque<Frame> frames_;  // in the order of their numbers
  size_t noted_ = 0;
  uint64_t dropped_ = 0;
  uint64_t lane_ends_[2] = {0, 0};  // of kFrames and kPosted
};

}  // namespace fargpu::client::timeline
