// The attributes of a launch configuration, and the driver's rules for them.
#pragma once

#include <cuda.h>

#include <array>
#include <utility>
#include <vector>

namespace fargpu::sim {

struct LaunchAttributes {
  bool cooperative = false;
  std::array<unsigned, 3> cluster = {0, 0, 0};  // 0: not given
  // Recorded when the grid is done; in a captured stream they stand for the edge.
  std::vector<std::pair<CUevent, CUgraphEdgeData>> events;
  bool external = false;        // an event would be recorded by a node; never done
  bool may_be_of_node = false;  // given: attributes of nodes are no error
  bool of_node = false;         // there is one of these
};

// The attributes of `config` that have an effect here; the others only affect a real GPU, but their
// values are checked as well. CUDA_ERROR_NOT_SUPPORTED: an attribute that is not simulated.
CUresult read_attributes(const CUlaunchConfig& config, LaunchAttributes* attributes);

}  // namespace fargpu::sim
