// What a launch of a graph takes in the driver's queue of its stream (StreamQueue).
#pragma once

#include <cstdint>

namespace fargpu::client {

struct Graph;

// At least 1; more than StreamQueue::kMost: no queue has room for it beside other work. Needs the
// graph's lock.
uint32_t queue_places(const Graph& graph);

}  // namespace fargpu::client
