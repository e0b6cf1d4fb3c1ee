#include "sim/graph/stream_capture.h"

#include <algorithm>

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

}  // namespace

StreamCapture::StreamCapture(std::shared_ptr<Graph> graph, bool own, CUstreamCaptureMode mode,
                             const std::shared_ptr<Stream>& origin, CapturedPlace first)
    : Capture(mode), graph_(std::move(graph)), own_(own) {
  streams.push_back(origin);
  frontiers_[origin.get()] = std::move(first);
}

// Its stream may have been destroyed before it was ended.
StreamCapture::~StreamCapture() {
  std::lock_guard lock(graph_mutex());
  if (!graph_->capturing) return;
  graph_->capturing = false;
  if (own_) end_graph(*graph_);
}

CUresult StreamCapture::add(const Stream& stream, CUgraphNodeParams& params,
                            std::span<const CUlaunchAttribute> attributes) {
  std::lock_guard lock(graph_mutex());
  OperationPtr operation;
  CUresult result = make_operation(params, *graph_, &operation);
  if (result == CUDA_SUCCESS) result = set_attributes(attributes, &operation);
  if (result == CUDA_SUCCESS) result = fits(*graph_, *operation);
  return result == CUDA_SUCCESS ? add(stream, std::move(operation)) : result;
}

CUresult StreamCapture::add(const Stream& stream, OperationPtr operation) {
  CapturedPlace& frontier = frontiers_.at(&stream);
  std::vector<Dependency> dependencies;
  const CUresult result =
      resolve_dependencies(*graph_, operation->type(), frontier.nodes.data(), frontier.data.data(),
                           frontier.nodes.size(), &dependencies);
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
    if (std::ranges::find(frontier.nodes, place.nodes[i]) != frontier.nodes.end()) continue;
    frontier.nodes.push_back(place.nodes[i]);
    frontier.data.push_back(place.data[i]);
  }
}

void StreamCapture::forget_last(const CapturedPlace& place) {
  std::erase_if(last_, [&](CUgraphNode node) {
    return std::ranges::find(place.nodes, node) != place.nodes.end();
  });
}

void StreamCapture::leave(const Stream& stream) {
  CapturedPlace& frontier = frontiers_.at(&stream);
  forget_last(frontier);
  frontier.nodes.clear();
  frontier.data.clear();
}

bool StreamCapture::joined() const {
  const std::vector<CUgraphNode>& reached = frontiers_.at(streams.front().get()).nodes;
  std::lock_guard lock(graph_mutex());
  return std::ranges::all_of(last_, [&](CUgraphNode node) {
    return !find_node(node) || std::ranges::find(reached, node) != reached.end();
  });
}

}  // namespace fargpu::sim
