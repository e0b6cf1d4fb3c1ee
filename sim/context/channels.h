// Channels: the queues of the hardware, which the streams of a context share. Work that cannot
// begin holds up what lies behind it in its channel, also that of other streams.
//
// As on an H200 with driver 580 there are as many of each kind as CUDA_DEVICE_MAX_CONNECTIONS says,
// or 8. At its first work of a kind a stream gets a channel in which nothing waits, that which the
// fewest have, and keeps it; so do the lanes of a graph besides the first one, which has that of
// the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/base/task_queue.h"

namespace fargpu::sim {

// Of kernels, fills and other copies; of copies from pinned memory; of copies to the host.
// Operations on memory need none.
enum class ChannelKind : uint8_t { kCompute, kToDevice, kToHost, kNone };

struct Channel {
  Fence newest;  // when the newest work in it has begun
};
using ChannelPointer = std::shared_ptr<Channel>;
using StreamChannels = std::array<ChannelPointer, 3>;  // by kind; null: none yet

class Channels {
 public:
  explicit Channels(int connections);

  // Calls come in the order of the submissions. Each adds to `task` what it has to wait for.
  void take(Task* task, ChannelKind kind, StreamChannels* stream) const;
  // A launch of a graph, of which `lanes` have more than copies and host nodes. They are held up to
  // its end. `side_lanes`: what its earlier launches got.
  void take_lanes(Task* task, size_t lanes, StreamChannels* stream,
                  std::vector<ChannelPointer>* side_lanes) const;

 private:
  void put(Task* task, ChannelKind kind, ChannelPointer* channel, const Fence& passed) const;

  std::array<std::vector<ChannelPointer>, 3> channels_;
};

}  // namespace fargpu::sim
