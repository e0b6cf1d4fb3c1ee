#include "sim/graph/body_nodes.h"

#include "sim/graph/kernel_node.h"
#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

CUgraph handle_of(const Graph& graph) { return to_handle<CUgraph>(graph.handle); }

bool valid_size(CUgraphConditionalNodeType kind, unsigned size) {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size != 0;
  }
  return false;
}

}  // namespace

void ChildGraph::params(CUgraphNodeParams* out) const {
  *out = {}, out->type = type();
  out->graph.graph = handle_of(*bodies_.front());
  out->graph.ownership = ownership_;
}

OperationPtr ChildGraph::with_bodies(const std::vector<std::shared_ptr<Graph>>& bodies) const {
  return std::make_shared<ChildGraph>(bodies.front(), ownership_);
}

Conditional::Conditional(std::shared_ptr<ConditionalValue> value, CUgraphConditionalNodeType kind,
                         std::vector<std::shared_ptr<Graph>> bodies)
    : Operation(CU_GRAPH_NODE_TYPE_CONDITIONAL),
      value_(std::move(value)),
      kind_(kind),
      bodies_(std::move(bodies)) {
  for (const auto& body : bodies_) handles_.push_back(handle_of(*body));
}

void Conditional::params(CUgraphNodeParams* out) const {
  *out = {}, out->type = type();
  out->conditional.handle = value_->handle;
  out->conditional.type = kind_;
  out->conditional.size = static_cast<unsigned>(bodies_.size());
  out->conditional.phGraph_out = const_cast<CUgraph*>(handles_.data());
  out->conditional.ctx = value_->context->handle();
}

CUgraphExecUpdateResult Conditional::accepts(const Operation& next) const {
  const auto& other = static_cast<const Conditional&>(next);
  const bool same = other.kind_ == kind_ && other.bodies_.size() == bodies_.size() &&
                    other.value_->context == value_->context;
  return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

OperationPtr Conditional::with_bodies(const std::vector<std::shared_ptr<Graph>>& bodies) const {
  for (const auto& body : bodies) body->conditional_body = true;
  return std::make_shared<Conditional>(value_, kind_, bodies);
}

size_t Conditional::chosen() const {
  const unsigned value = value_->value();
  switch (kind_) {
    case CU_GRAPH_COND_TYPE_WHILE:
      return value != 0 ? 0 : SIZE_MAX;
    case CU_GRAPH_COND_TYPE_IF:
      if (value != 0) return 0;
      return bodies_.size() == 2 ? 1 : SIZE_MAX;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return value < bodies_.size() ? value : SIZE_MAX;
  }
  return SIZE_MAX;
}

CUresult make_child(CUDA_CHILD_GRAPH_NODE_PARAMS& params, Graph& graph, OperationPtr* operation) {
  const auto child = find_graph(params.graph);
  if (child && child->moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (!child || child.get() == &graph || child->embedded) return CUDA_ERROR_INVALID_VALUE;
  if (!child->conditionals.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  if (params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    if (graph.conditional_body && has_memory_nodes(*child)) return CUDA_ERROR_NOT_SUPPORTED;
    child->embedded = child->moved = true;
    *operation = std::make_shared<ChildGraph>(child, params.ownership);
    return CUDA_SUCCESS;
  }
  if (params.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes(*child) || has_device_nodes(*child)) return CUDA_ERROR_NOT_SUPPORTED;
  auto copy = copy_graph(*child, true);
  copy->embedded = true;
  *operation = std::make_shared<ChildGraph>(std::move(copy), params.ownership);
  return CUDA_SUCCESS;
}

CUresult make_conditional(CUDA_CONDITIONAL_NODE_PARAMS& params, Graph& graph,
                          OperationPtr* operation) {
  const auto value = ConditionalValue::find(params.handle);
  if (!value || value->used || !valid_size(params.type, params.size))
    return CUDA_ERROR_INVALID_VALUE;
  if (params.ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<Context> context;
  if (CUresult result = node_context(params.ctx, &context); result != CUDA_SUCCESS) return result;
  if (context != value->context || graph.embedded != graph.conditional_body)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::shared_ptr<Graph>> bodies;
  for (unsigned i = 0; i < params.size; ++i) {
    auto& body = bodies.emplace_back(make_graph());
    body->embedded = body->conditional_body = true;
  }
  value->used = true;
  *operation = std::make_shared<Conditional>(value, params.type, std::move(bodies));
  CUgraphNodeParams filled;
  (*operation)->params(&filled);
  params.phGraph_out = filled.conditional.phGraph_out;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim
