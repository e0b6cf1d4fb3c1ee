#include "sim/graph/plan.h"

#include <algorithm>
#include <unordered_map>

#include "sim/graph/kernel_node.h"

namespace fargpu::sim {
namespace {

constexpr uint32_t kMostLanes = 16;

class Planner {
 public:
  // The steps behind which all of the graph is done.
  bool add(const Graph& graph, const std::vector<uint32_t>& before, std::vector<uint32_t>* ends) {
    std::vector<Node*> order;
    if (!topological_order(graph, &order, &cycle_)) return false;
    std::unordered_map<const Node*, uint32_t> steps;
    for (Node* node : order) {
      std::vector<uint32_t> after;
      for (const auto& [from, data] : node->dependencies) after.push_back(steps[from]);
      if (after.empty()) after = before;
      if (!add(*node, std::move(after))) return false;
      steps[node] = last();
      if (node->dependents.empty()) ends->push_back(last());
    }
    if (order.empty()) *ends = before;
    return true;
  }
  std::shared_ptr<const Plan> take() { return std::make_shared<Plan>(std::move(plan_)); }
  Node* cycle() const { return cycle_; }

 private:
  uint32_t last() const { return static_cast<uint32_t>(plan_.steps.size() - 1); }

  bool add(Node& node, std::vector<uint32_t> after) {
    const Operation& operation = *node.operation;
    std::vector<std::shared_ptr<const Plan>> bodies;
    if (operation.type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      std::vector<uint32_t> ends;
      if (!add(*operation.bodies().front(), after, &ends)) return false;
      after = std::move(ends);
    } else {
      for (const auto& body : operation.bodies()) {
        bodies.push_back(make_plan(*body, &cycle_));
        if (!bodies.back()) return false;
      }
    }
    const uint32_t lane = choose_lane(after);
    const bool stays = node.enabled || device_node(operation) != nullptr;
    plan_.steps.push_back({stays ? node.operation : nullptr, node.enabled, std::move(after), lane,
                           std::move(bodies)});
    ends_[lane] = last();
    return true;
  }

  // The lane of a preceding step that has no successor yet, else a new one.
  uint32_t choose_lane(const std::vector<uint32_t>& after) {
    for (const uint32_t step : after) {
      const uint32_t lane = plan_.steps[step].lane;
      if (ends_[lane] == step) return lane;
    }
    if (ends_.empty() || (plan_.lanes < kMostLanes && plan_.lanes == ends_.size())) {
      ends_.push_back(0);
      plan_.lanes = static_cast<uint32_t>(ends_.size());
      return plan_.lanes - 1;
    }
    return static_cast<uint32_t>(plan_.steps.size()) % plan_.lanes;
  }

  Plan plan_;
  std::vector<uint32_t> ends_;  // the last step of each lane
  Node* cycle_ = nullptr;
};

}  // namespace

void run_plan(const Plan& plan) {
  for (const Step& step : plan.steps) {
    if (!step.operation) continue;
    if (step.operation->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      run_conditional(static_cast<const Conditional&>(*step.operation), step);
    } else {
      step.operation->prepare(nullptr)();
    }
  }
}

void reset_device_nodes(const Plan& plan) {
  for (const Step& step : plan.steps) {
    DeviceNode* const node = step.operation ? device_node(*step.operation) : nullptr;
    if (node != nullptr)
      node->reset(static_cast<const KernelOperation&>(*step.operation).work(), step.enabled);
    for (const auto& body : step.bodies) reset_device_nodes(*body);
  }
}

std::shared_ptr<const Plan> make_plan(const Graph& graph, Node** cycle) {
  Planner planner;
  std::vector<uint32_t> ends;
  const bool made = planner.add(graph, {}, &ends);
  if (!made) *cycle = planner.cycle();
  return made ? planner.take() : nullptr;
}

void run_conditional(const Conditional& conditional, const Step& step) {
  const Context& context = *conditional.value().context;
  do {
    const size_t body = conditional.chosen();
    if (body == SIZE_MAX || !context.alive() || context.error() != CUDA_SUCCESS) return;
    run_plan(*step.bodies[body]);
  } while (conditional.kind() == CU_GRAPH_COND_TYPE_WHILE);
}

void begin_conditionals(const Plan& plan) {
  for (const Step& step : plan.steps) {
    if (step.operation && step.operation->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      static_cast<const Conditional&>(*step.operation).value().begin();
    for (const auto& body : step.bodies) begin_conditionals(*body);
  }
}

}  // namespace fargpu::sim
