// A pair of transports inside one process: bounded queues of frames, for tests and for measuring
// the cost of the layers above.
//
// Faults can be injected per direction, to see how the layers above take a slow, dying or lying
// peer. Thread rules as in transport.h, for each end by itself; the ends may outlive each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "common/transport/transport.h"

namespace fargpu::transport {

// Of the frames that one end sends; numbers count from 1, 0 means never.
struct LoopbackFaults {
  // this frame and all later ones do not arrive: the connection is lost instead
  uint64_t drop_at_frame = 0;
  uint64_t truncate_at_frame = 0;      // the connection is lost in the middle of this frame
  std::chrono::microseconds delay{0};  // every frame arrives this much later
  // May change header and body (not the length) before they arrive.
  std::function<void(std::span<std::byte> header_and_body)> tamper{};
};

struct LoopbackOptions {
  wire::FrameLimits limits{};  // of both directions
  // per direction; a single larger frame passes when the queue is empty
  size_t queue_bytes = 4 << 20;
  bool with_descriptor = true;  // false: poll_descriptor() is -1
  LoopbackFaults first_faults{}, second_faults{};
};

std::pair<std::unique_ptr<Transport>, std::unique_ptr<Transport>> make_loopback_pair(
    const LoopbackOptions& options = {});

}  // namespace fargpu::transport
