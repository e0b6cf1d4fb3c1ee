// What a launch of a graph takes in the driver's queue of its stream (StreamQueue).
#pragma once

#include <cstdint>

namespace fargpu::client {

struct Graph;

// At least 1, and not more than StreamQueue::kMost: such a launch waits until the queue is empty.
// Needs the graph's lock.
uint32_t queue_places(const Graph& graph);

}  // namespace fargpu::client
