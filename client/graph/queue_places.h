// The places that a graph launch takes in the driver's queue of its stream (StreamQueue).
#pragma once

#include <cstdint>

namespace fargpu::client {

struct Graph;

// At least 1; more than StreamQueue::kMost: it fits into no queue together with other work. Needs
// the graph's lock.
uint32_t queue_places(const Graph& graph);

}  // namespace fargpu::client
