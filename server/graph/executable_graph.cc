#include "server/graph/executable_graph.h"

#include <algorithm>
#include <utility>

namespace fargpu::server {

ExecutableGraph::~ExecutableGraph() {
  (void)made_->end();
  if (graph_ != nullptr) (void)parts_.core.driver.cuGraphDestroy(graph_);
}

CUresult ExecutableGraph::Made::end() {
  CUgraphExec const exec = exec_.exchange(nullptr);
  return exec == nullptr ? CUDA_SUCCESS : driver_.cuGraphExecDestroy(exec);
}

void ExecutableGraph::note_ending() {
  const std::weak_ptr<const void> self = weak_from_this();
  if (base_ != nullptr) base_->note_ending(self);
  for (const auto& base : updated_with_) base->note_ending(self);
}

bool ExecutableGraph::uses(const GraphBase& base) const {
  return base_.get() == &base || std::any_of(updated_with_.begin(), updated_with_.end(),
                                             [&](const auto& one) { return one.get() == &base; });
}

void ExecutableGraph::note_memory(const GraphPlaces& places, const GraphBase* base) {
  leaves_.clear();
  frees_ = places.freed;
  const auto note = [&](const GraphBase& one) {
    for (const CUdeviceptr address : one.addresses())
      if (std::erase(frees_, address) == 0) leaves_.push_back(address);
  };
  if (base != nullptr) note(*base);
  for (const auto& child : places.moved) note(*child);
}

CUresult ExecutableGraph::make(CUgraph graph, unsigned long long flags, Outcome* outcome) {
  const DriverTable& driver = parts_.core.driver;
  CUgraphExec made = nullptr;
  if (driver.cuGraphInstantiateWithParams == nullptr) {
    const CUresult result = driver.cuGraphInstantiateWithFlags(&made, graph, flags);
    made_->exec_ = made;
    if (result != CUDA_SUCCESS) outcome->found = CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = flags;
  const CUresult result = driver.cuGraphInstantiateWithParams(&made, graph, &params);
  made_->exec_ = made;
  outcome->found = params.result_out;
  outcome->error_place = places_.place_of(params.hErrNode_out);
  return result;
}

ExecutableGraph::Outcome ExecutableGraph::instantiate(schema::graph::Nodes::Reader description,
                                                      std::shared_ptr<GraphBase> base,
                                                      unsigned long long flags) {
  const DriverTable& driver = parts_.core.driver;
  Outcome outcome;
  base_ = std::move(base);
  if (base_ != nullptr) {
    outcome.result = base_->edit(description, &places_);
  } else {
    outcome.result = driver.cuGraphCreate(&graph_, 0);
    if (outcome.result != CUDA_SUCCESS) return outcome;
    places_.by_words =
        parts_.core.contexts.current() != 0 && driver.cuGraphAddBatchMemOpNode != nullptr;
    outcome.result = build_graph(parts_, description, graph_, &places_);
  }
  if (outcome.result != CUDA_SUCCESS) {
    outcome.found = CUDA_GRAPH_INSTANTIATE_ERROR;
    outcome.error_place = static_cast<uint32_t>(places_.nodes.size());
    return outcome;
  }
  note_memory(places_, base_.get());
  for_kernels_ = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  outcome.result = make(base_ != nullptr ? base_->get() : graph_, flags, &outcome);
  for (CUgraphNode const node : places_.retired) {
    if (outcome.result == CUDA_SUCCESS)
      outcome.result = driver.cuGraphNodeSetEnabled(get(), node, 0);
  }
  return outcome;
}

ExecutableGraph::Outcome ExecutableGraph::update(schema::graph::Nodes::Reader description,
                                                 std::shared_ptr<GraphBase> base) {
  const DriverTable& driver = parts_.core.driver;
  Outcome outcome;
  CUgraph own = nullptr;
  GraphPlaces places;
  if (base != nullptr) {
    outcome.result = base->edit(description, &places);
  } else {
    outcome.result = driver.cuGraphCreate(&own, 0);
    if (outcome.result != CUDA_SUCCESS) return outcome;
    places.by_words = places_.by_words;
    places.word_contexts = word_contexts(0);
    outcome.result = build_graph(parts_, description, own, &places);
  }
  if (outcome.result != CUDA_SUCCESS) {
    outcome.found = CU_GRAPH_EXEC_UPDATE_ERROR;
    outcome.error_place = static_cast<uint32_t>(places.nodes.size());
  } else if (!has_the_same_left_over(places)) {
    outcome.result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    outcome.found = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  } else {
    CUgraphExecUpdateResultInfo info{};
    outcome.result = driver.cuGraphExecUpdate_v2(get(), base != nullptr ? base->get() : own, &info);
    outcome.found = info.result;
    outcome.error_place = places.place_of(info.errorNode);
    outcome.error_from_place = places.place_of(info.errorFromNode);
  }
  if (outcome.result == CUDA_SUCCESS) {
    // The driver has taken over the calls of host nodes and the allocated memory; the rest is still
    // that of the first graph.
    note_memory(places, base.get());
    places_.host_nodes = std::move(places.host_nodes);
    places_.waits = places.waits;
    updated_with_ = std::move(places.moved);
    if (base != nullptr) updated_with_.push_back(std::move(base));
  }
  if (own != nullptr) (void)driver.cuGraphDestroy(own);
  return outcome;
}

std::vector<uint16_t> ExecutableGraph::word_contexts(size_t first) const {
  std::vector<uint16_t> contexts;
  for (size_t i = first; places_.by_words && i < places_.host_nodes.size(); ++i)
    contexts.push_back(places_.host_nodes[i]->words->context());
  return contexts;
}

// A driver pairs the nodes of which nothing is left with whatever this one has in their places.
bool ExecutableGraph::has_the_same_left_over(const GraphPlaces& other) const {
  return other.retired == places_.retired && other.idle == places_.idle;
}

bool ExecutableGraph::has_node(uint32_t place) const {
  if (place >= places_.nodes.size()) return false;
  return base_ == nullptr || !base_->is_gone(places_.nodes[place]);
}

CUresult ExecutableGraph::set_node(uint32_t place, schema::graph::Node::Reader description) {
  if (!has_node(place)) return CUDA_ERROR_INVALID_VALUE;
  const auto first =
      std::lower_bound(places_.host_places.begin(), places_.host_places.end(), place);
  auto next = static_cast<size_t>(first - places_.host_places.begin());
  GraphPlaces child;
  child.by_words = places_.by_words;
  child.word_contexts = word_contexts(next);
  const CUresult result =
      server::set_node(parts_, get(), places_.nodes[place], description, &child);
  if (result != CUDA_SUCCESS) return result;
  // The driver has found as many host nodes as there were in the child.
  places_.waits = places_.waits || child.waits;
  for (auto& host : child.host_nodes) {
    if (next == places_.host_nodes.size()) break;
    places_.host_nodes[next++] = std::move(host);
  }
  return CUDA_SUCCESS;
}

CUresult ExecutableGraph::set_kernel(uint32_t place, CUcontext context, const GivenKernel& kernel) {
  if (!has_node(place)) return CUDA_ERROR_INVALID_VALUE;
  KernelParams params;
  const CUresult result = params.take(parts_, context, kernel);
  return result == CUDA_SUCCESS ? parts_.core.driver.cuGraphExecKernelNodeSetParams_v2(
                                      get(), places_.nodes[place], params.get())
                                : result;
}

CUresult ExecutableGraph::enable_node(uint32_t place, bool enabled) {
  const DriverTable& driver = parts_.core.driver;
  if (driver.cuGraphNodeSetEnabled == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!has_node(place)) return CUDA_ERROR_INVALID_VALUE;
  return driver.cuGraphNodeSetEnabled(get(), places_.nodes[place], enabled ? 1 : 0);
}

}  // namespace fargpu::server
