// The operations of child graph nodes and conditional nodes.
#pragma once

#include <memory>
#include <vector>

#include "sim/graph/graph.h"
#include "sim/graph/operation.h"
#include "sim/work/conditional_value.h"

namespace fargpu::sim {

class ChildGraph final : public Operation {
 public:
  ChildGraph(std::shared_ptr<Graph> graph, CUgraphChildGraphNodeOwnership ownership)
      : Operation(CU_GRAPH_NODE_TYPE_GRAPH), bodies_{std::move(graph)}, ownership_(ownership) {}
  void params(CUgraphNodeParams* out) const override;
  std::function<void()> prepare(const Fence&) const override {
    return [] {};  // its nodes are steps of their own (plan.h)
  }
  std::span<const std::shared_ptr<Graph>> bodies() const override { return bodies_; }
  OperationPtr with_bodies(const std::vector<std::shared_ptr<Graph>>& bodies) const override;

 private:
  const std::vector<std::shared_ptr<Graph>> bodies_;
  const CUgraphChildGraphNodeOwnership ownership_;
};

class Conditional final : public Operation {
 public:
  Conditional(std::shared_ptr<ConditionalValue> value, CUgraphConditionalNodeType kind,
              std::vector<std::shared_ptr<Graph>> bodies);
  void params(CUgraphNodeParams* out) const override;
  std::function<void()> prepare(const Fence&) const override {
    return [] {};  // plan.h runs the bodies
  }
  CUgraphExecUpdateResult accepts(const Operation& next) const override;
  std::span<const std::shared_ptr<Graph>> bodies() const override { return bodies_; }
  OperationPtr with_bodies(const std::vector<std::shared_ptr<Graph>>& bodies) const override;

  ConditionalValue& value() const { return *value_; }
  CUgraphConditionalNodeType kind() const { return kind_; }
  // The body that the value chooses; SIZE_MAX: none.
  size_t chosen() const;

 private:
  const std::shared_ptr<ConditionalValue> value_;
  const CUgraphConditionalNodeType kind_;
  const std::vector<std::shared_ptr<Graph>> bodies_;
  std::vector<CUgraph> handles_;  // memory that params() points to
};

}  // namespace fargpu::sim
