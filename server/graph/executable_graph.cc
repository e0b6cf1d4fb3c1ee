#include "server/graph/executable_graph.h"

#include <utility>

namespace fargpu::server {

ExecutableGraph::~ExecutableGraph() {
  const DriverTable& driver = parts_.core.driver;
  if (exec_ != nullptr) (void)driver.cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) (void)driver.cuGraphDestroy(graph_);
}

void ExecutableGraph::note_memory() {
  frees_ = places_.freed;
  const auto note = [&](const GraphBase& base) {
    for (const CUdeviceptr address : base.addresses())
      if (std::erase(frees_, address) == 0) leaves_.push_back(address);
  };
  if (base_ != nullptr) note(*base_);
  for (const auto& child : places_.moved) note(*child);
}

ExecutableGraph::Outcome ExecutableGraph::instantiate(schema::graph::Nodes::Reader description,
                                                      std::span<const std::byte> bytes,
                                                      std::shared_ptr<GraphBase> base,
                                                      unsigned long long flags) {
  const DriverTable& driver = parts_.core.driver;
  Outcome outcome;
  if (base != nullptr) {
    GraphPlaces* places = nullptr;
    outcome.result = base->build(description, bytes, &places);
    places_ = *places;
    base_ = std::move(base);
  } else {
    outcome.result = driver.cuGraphCreate(&graph_, 0);
    if (outcome.result != CUDA_SUCCESS) return outcome;
    outcome.result = build_graph(parts_, description, graph_, &places_);
  }
  CUgraph const graph = base_ != nullptr ? base_->get() : graph_;
  if (outcome.result != CUDA_SUCCESS) {
    outcome.found = CUDA_GRAPH_INSTANTIATE_ERROR;
    outcome.error_place = static_cast<uint32_t>(places_.nodes.size());
    return outcome;
  }
  note_memory();
  for_kernels_ = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  if (driver.cuGraphInstantiateWithParams == nullptr) {
    outcome.result = driver.cuGraphInstantiateWithFlags(&exec_, graph, flags);
    if (outcome.result != CUDA_SUCCESS) outcome.found = CUDA_GRAPH_INSTANTIATE_ERROR;
    return outcome;
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = flags;
  outcome.result = driver.cuGraphInstantiateWithParams(&exec_, graph, &params);
  outcome.found = params.result_out;
  outcome.error_place = places_.place_of(params.hErrNode_out);
  return outcome;
}

ExecutableGraph::Outcome ExecutableGraph::update(schema::graph::Nodes::Reader description) {
  const DriverTable& driver = parts_.core.driver;
  Outcome outcome;
  CUgraph graph = nullptr;
  outcome.result = driver.cuGraphCreate(&graph, 0);
  if (outcome.result != CUDA_SUCCESS) return outcome;
  GraphPlaces places;
  outcome.result = build_graph(parts_, description, graph, &places);
  if (outcome.result != CUDA_SUCCESS) {
    outcome.found = CU_GRAPH_EXEC_UPDATE_ERROR;
    outcome.error_place = static_cast<uint32_t>(places.nodes.size());
  } else {
    CUgraphExecUpdateResultInfo info{};
    outcome.result = driver.cuGraphExecUpdate_v2(exec_, graph, &info);
    outcome.found = info.result;
    outcome.error_place = places.place_of(info.errorNode);
    outcome.error_from_place = places.place_of(info.errorFromNode);
  }
  if (outcome.result == CUDA_SUCCESS) {
    // The driver has taken over whom host nodes call; the rest is still that of the first graph.
    places_.host_nodes = std::move(places.host_nodes);
    places_.waits = places.waits;
  }
  (void)driver.cuGraphDestroy(graph);
  return outcome;
}

}  // namespace fargpu::server
