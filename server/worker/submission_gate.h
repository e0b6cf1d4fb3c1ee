// SubmissionGate: the place at which a session's calls wait while the daemon does not let them
// submit (server/handover/session_orders.h). It stands where a frame is handled, so not one call
// runs ahead of a gate that has closed.
//
// A call that submits waits while the gate is closed, and so does every call behind it: calls are
// executed in the order in which the client sent them. That goes for pings, too: the client uses
// the answer as a sign that its earlier frames have been executed, and learns at once that the
// worker lives. Answers that release a stream (a host function has returned, bytes of a copy have
// arrived) pass a closed gate, even if earlier calls of the client wait, and wait at a shut gate.
// The host's writes to mapped memory pass with them: a stream that goes on may read it.
//
// With nothing waiting, an open gate costs one load. One thread (the executor's).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "common/wire/frame.h"
#include "server/copy/staging.h"
#include "server/handover/session_orders.h"

namespace fargpu::server {

class SubmissionGate {
 public:
  // What waits takes this much memory at most; then the executor takes no more frames.
  static constexpr size_t kMostFrames = 16384;
  static constexpr size_t kMostBytes = 64u << 20;

  // The orders outlive the gate.
  explicit SubmissionGate(const SessionOrders& orders) : orders_(orders), word_(&orders.gate) {}
  SubmissionGate(const SubmissionGate&) = delete;
  SubmissionGate& operator=(const SubmissionGate&) = delete;

  // A frame may have to wait: the daemon has closed the gate, or frames wait at it.
  bool in_the_way() const { return word_->load(std::memory_order_relaxed) != 0; }
  bool is_open() const { return state() == Gate::kOpen; }
  // A stream that is held may be released.
  bool lets_streams_go() const {
    return orders_.gate.load(std::memory_order_relaxed) < static_cast<uint32_t>(Gate::kShut);
  }

  // Whether a frame that arrives now must wait.
  bool stops(uint16_t opcode) const;
  struct Frame {
    wire::FrameHeader header;
    std::vector<uint64_t> body;  // words, for the alignment
    std::span<std::byte> bulk;   // in `block`, or where an earlier call has said
    StagingBlock block;
    std::span<const std::byte> body_bytes() const {
      return std::as_bytes(std::span(body)).first(header.body_bytes);
    }
  };
  void keep(const wire::FrameHeader& header, std::span<const std::byte> body,
            std::span<std::byte> bulk, StagingBlock block);
  bool is_full() const { return frames_.size() >= kMostFrames || bytes_ >= kMostBytes; }
  bool any_waits() const { return !frames_.empty(); }
  // Takes out the oldest frame that may go on now.
  std::optional<Frame> next();

 private:
  Gate state() const;
  std::optional<Frame> take(const std::deque<Frame>::iterator& place);

  static const std::atomic<uint32_t> kInTheWay;
  const SessionOrders& orders_;
  const std::atomic<uint32_t>* word_;  // the daemon's; kInTheWay while frames wait
  std::deque<Frame> frames_;
  size_t bytes_ = 0;
  size_t passing_ = 0;  // of the frames: those that a closed gate lets pass
};

}  // namespace fargpu::server
