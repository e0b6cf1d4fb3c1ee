// The operations of child graph nodes and conditional nodes.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "sim/driver/context.h"
#include "sim/graph/graph.h"
#include "sim/graph/operation.h"

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
  OperationPtr with_bodies(std::vector<std::shared_ptr<Graph>> bodies) const override;

 private:
  const std::vector<std::shared_ptr<Graph>> bodies_;
  const CUgraphChildGraphNodeOwnership ownership_;
};

// What a conditional handle stands for. Its value outlives launches.
class ConditionalValue {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kConditional;
  ConditionalValue(std::shared_ptr<Context> context, unsigned first, bool assign)
      : context(std::move(context)), first_(first), assign_(assign), value_(first) {}

  // At the beginning of a launch.
  void begin() {
    if (assign_) value_ = first_.load();
  }
  unsigned value() const { return value_; }
  void set(unsigned value) { value_ = value; }
  // Of a graph that an executable one is updated with.
  void take_default(const ConditionalValue& other) {
    first_ = other.first_.load();
    assign_ = other.assign_.load();
  }

  const std::shared_ptr<Context> context;
  uint64_t handle = 0;
  bool used = false;  // by a node; guarded by the mutex of all graphs

 private:
  std::atomic<unsigned> first_;
  std::atomic<bool> assign_;
  std::atomic<unsigned> value_;
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
  OperationPtr with_bodies(std::vector<std::shared_ptr<Graph>> bodies) const override;

  ConditionalValue& value() const { return *value_; }
  CUgraphConditionalNodeType kind() const { return kind_; }
  // The body that the value chooses; SIZE_MAX: none.
  size_t chosen() const;

 private:
  const std::shared_ptr<ConditionalValue> value_;
  const CUgraphConditionalNodeType kind_;
  const std::vector<std::shared_ptr<Graph>> bodies_;
  std::vector<CUgraph> handles_;  // what params() points to
};

}  // namespace fargpu::sim
