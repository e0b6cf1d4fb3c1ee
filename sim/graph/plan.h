// An executable graph as steps in an order in which they could run, with the nodes of child graphs
// in their place. Steps are spread over lanes, each of which runs its steps one after the other;
// lane 0 is the launch's own stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/graph/body_nodes.h"
#include "sim/graph/graph.h"

namespace fargpu::sim {

struct Plan;

struct Step {
  OperationPtr operation;  // nullptr: nothing happens here, as in a disabled node
  bool enabled = true;     // false, with an operation: kernels may enable it
  std::vector<uint32_t> after;
  uint32_t lane = 0;
  std::vector<std::shared_ptr<const Plan>> bodies;  // of a conditional node
};

struct Plan {
  std::vector<Step> steps;
  uint32_t lanes = 1;
};

// nullptr: there is a cycle, through `*cycle`.
std::shared_ptr<const Plan> make_plan(const Graph& graph, Node** cycle);
// The whole plan on the calling thread.
void run_plan(const Plan& plan);
// The nodes that kernels update are as the plan says.
void reset_device_nodes(const Plan& plan);
// The step of a conditional node: its bodies run on the calling thread.
void run_conditional(const Conditional& conditional, const Step& step);
// The value of each conditional node gets its default.
void begin_conditionals(const Plan& plan);

}  // namespace fargpu::sim
