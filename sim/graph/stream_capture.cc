#include "sim/graph/stream_capture.h"

#include <algorithm>
#include <array>

#include "sim/graph/api.h"
#include "sim/graph/body_nodes.h"
#include "sim/graph/kernel_node.h"

namespace fargpu::sim {
namespace {

CUresult set_attributes(std::span<const CUlaunchAttribute> attributes, OperationPtr* operation) {
  for (const CUlaunchAttribute& attribute : attributes) {
    const OperationPtr held = *operation;
    const auto& kernel = static_cast<const KernelOperation&>(*held);
    CUlaunchAttributeValue unused;
    const int id = static_cast<int>(attribute.id);
    if (kernel.attribute(id, &unused) != CUDA_SUCCESS) continue;  // not one of nodes
    const CUresult result = kernel.with_attribute(id, attribute.value, operation);
    if (result != CUDA_SUCCESS) return result;
    tell_device_node(**operation, attribute.id, &attribute.value);
  }
  return CUDA_SUCCESS;
}

// What a driver gives every captured launch, before its own attributes.
std::array<CUlaunchAttribute, 2> of_captured(const Stream& stream) {
  std::array<CUlaunchAttribute, 2> attributes{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
  attributes[0].value.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[1].value.priority = stream.priority;
  return attributes;
}

// Of two edges from a node this one stays: that from its end, or from where it lets kernels begin;
// of those from its start a programmatic one.
bool waits_longer(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return a.from_port != b.from_port ? a.from_port < b.from_port : a.type > b.type;
}

bool begins_early(std::span<const CUlaunchAttribute> attributes) {
  return std::ranges::any_of(attributes, [](const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute.value.programmaticStreamSerializationAllowed != 0;
  });
}

// Only a kernel can let another one begin early.
void make_programmatic(CapturedPlace& place) {
  for (size_t i = 0; i < place.nodes.size(); ++i) {
    const auto node = find_node(place.nodes[i]);
    if (!node || node->operation->type() != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    place.data[i] = {};
    place.data[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    place.data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
}

// Whether the node has ended there: a plain edge from its start does not say so.
bool ends_before(CUgraphNode node, const CapturedPlace& place) {
  for (size_t i = 0; i < place.nodes.size(); ++i)
    if (place.nodes[i] == node)
      return place.data[i].from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
             place.data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return false;
}

}  // namespace

StreamCapture::StreamCapture(std::shared_ptr<Graph> graph, CUstreamCaptureMode mode,
                             const std::shared_ptr<Stream>& origin, CapturedPlace first)
    : Capture(mode), graph_(std::move(graph)) {
  streams.push_back(origin);
  frontiers_[origin.get()] = std::move(first);
}

// Its stream may have been destroyed before it was ended. The graph ends, whosever it was.
StreamCapture::~StreamCapture() {
  std::lock_guard lock(graph_mutex());
  if (graph_->capturing) end_captured(*graph_);
}

CUresult StreamCapture::add(const Stream& stream, CUgraphNodeParams& params,
                            std::span<const CUlaunchAttribute> attributes) {
  std::lock_guard lock(graph_mutex());
  OperationPtr operation;
  CUresult result = make_operation(params, *graph_, &operation);
  if (result == CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_KERNEL)
    result = set_attributes(of_captured(stream), &operation);
  if (result == CUDA_SUCCESS) result = set_attributes(attributes, &operation);
  if (result == CUDA_SUCCESS) result = check_memory(*operation, nullptr);
  if (result == CUDA_SUCCESS && begins_early(attributes)) make_programmatic(frontiers_.at(&stream));
  return result == CUDA_SUCCESS ? add(stream, std::move(operation)) : result;
}

CUresult StreamCapture::add(const Stream& stream, OperationPtr operation) {
  CapturedPlace& frontier = frontiers_.at(&stream);
  std::vector<Dependency> dependencies;
  // Edges of captures are checked as those between kernels, whatever the node is.
  const CUresult result =
      resolve_dependencies(*graph_, CU_GRAPH_NODE_TYPE_KERNEL, frontier.nodes.data(),
                           frontier.data.data(), frontier.nodes.size(), &dependencies);
  if (result != CUDA_SUCCESS) return result;
  const auto node = add_node(*graph_, std::move(operation), std::move(dependencies));
  forget_last(frontier);
  last_.push_back(handle_of(*node));
  frontier.nodes = {handle_of(*node)};
  frontier.data = {CUgraphEdgeData{}};
  return CUDA_SUCCESS;
}

std::shared_ptr<CapturedPlace> StreamCapture::place(const Stream& stream) const {
  auto place = std::make_shared<CapturedPlace>(frontiers_.at(&stream));
  const Captures& captures = Captures::get();
  place->capture = captures.of(stream);
  return place;
}

void StreamCapture::join(const std::shared_ptr<Stream>& stream, const CapturedPlace& place) {
  if (frontiers_.find(stream.get()) == frontiers_.end()) streams.push_back(stream);
  CapturedPlace& frontier = frontiers_[stream.get()];
  for (size_t i = 0; i < place.nodes.size(); ++i) {
    const auto known = std::ranges::find(frontier.nodes, place.nodes[i]);
    if (known != frontier.nodes.end()) {
      CUgraphEdgeData& edge = frontier.data[static_cast<size_t>(known - frontier.nodes.begin())];
      if (waits_longer(place.data[i], edge)) edge = place.data[i];
      continue;
    }
    frontier.nodes.push_back(place.nodes[i]);
    frontier.data.push_back(place.data[i]);
  }
}

void StreamCapture::forget_last(const CapturedPlace& place) {
  std::erase_if(last_, [&](CUgraphNode node) { return ends_before(node, place); });
}

void StreamCapture::leave(const Stream& stream) {
  CapturedPlace& frontier = frontiers_.at(&stream);
  std::erase_if(last_, [&](CUgraphNode node) {
    return std::ranges::find(frontier.nodes, node) != frontier.nodes.end();
  });
  frontier.nodes.clear();
  frontier.data.clear();
}

bool StreamCapture::joined() const {
  const CapturedPlace& reached = frontiers_.at(streams.front().get());
  std::lock_guard lock(graph_mutex());
  return std::ranges::all_of(
      last_, [&](CUgraphNode node) { return !find_node(node) || ends_before(node, reached); });
}

}  // namespace fargpu::sim
