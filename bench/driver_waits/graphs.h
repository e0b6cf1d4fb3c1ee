// Graphs, made of the names of their nodes.
#pragma once

#include <string>
#include <vector>

#include "bench/driver_waits/steps.h"

namespace driver_waits {

// The parts without spaces around them.
std::vector<std::string> split(const std::string& list, char separator);

// `chain` is like "kernel, 20 x (host, kernel)"; each node comes behind the one before it.
CUgraph make_graph(World& world, const std::string& chain);

// The step that makes `world.graph`.
inline Step graph_step(const std::string& chain) {
  return {"", [chain](World& world) {
            world.graph = make_graph(world, chain);
            return CUDA_SUCCESS;
          }};
}

// Describes the node once more, for a change of it.
CUgraphNodeParams describe_node(World& world, const std::string& name);

}  // namespace driver_waits
