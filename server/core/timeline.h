// Timeline: records of the executor's work, from the client's request (fgTimelineStart) until the
// session ends. Until then it costs a branch per frame and per reply.
//
// A ring of a fixed number of records: when it is full, later ones are counted and left out.
// On the executor's thread.
#pragma once

#include <memory>
#include <span>

#include "common/rpc/frame_observer.h"
#include "common/wire/timeline_record.h"

namespace fargpu::server {

class Timeline final : public rpc::FrameObserver {
 public:
  // Nanoseconds of the monotonic clock.
  static uint64_t now();

  // False: there is no memory, the number is none of 1 to wire::kMostTimelineRecords, or it is on.
  bool start(uint64_t records);
  bool on() const { return ring_ != nullptr; }

  // Around a frame. Its record ends when its answer is sent, if that happens in between.
  void begin_frame(const wire::FrameHeader& header);
  void end_frame();
  // Work between frames that began then.
  void posted(uint64_t begin);
  void sends(const wire::FrameHeader& reply) override;

  // Takes out as many of the oldest records as fit into whole ones. Returns how many.
  size_t take(std::span<std::byte> out);
  size_t size() const { return size_; }
  // Records that were left out.
  uint64_t dropped() const { return dropped_; }

 private:
  void add(const wire::TimelineRecord& record);

  std::unique_ptr<wire::TimelineRecord[]> ring_;
  size_t room_ = 0, first_ = 0, size_ = 0;
  uint64_t dropped_ = 0;
  bool in_frame_ = false;
  wire::TimelineRecord frame_;  // while in_frame_
};

}  // namespace fargpu::server
