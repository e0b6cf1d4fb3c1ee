#include "tests/hunt/graph_builder.h"

#include "tests/hunt/call.h"

namespace fargpu::hunt {

NodeParams::NodeParams(const Device& device, const Buffers& buffers, const Node& node,
                       CUdeviceptr counter)
    : counter_(counter), value_(node.value) {
  if (node.to.buffer >= 0) {
    to_ = buffers.address(node.to);
    words_ = buffers.words(node.to);
  }
  if (node.from.buffer >= 0) from_ = buffers.address(node.from);
  kernel_.gridDimX = kernel_.gridDimY = kernel_.gridDimZ = 1;
  kernel_.blockDimX = 32;
  kernel_.blockDimY = kernel_.blockDimZ = 1;
  kernel_.kernelParams = parameters_;
  parameters_[0] = &to_;
  parameters_[2] = &words_;
  if (node.kind == NodeKind::kKernelCopy) {
    kernel_.func = device.copy;
    parameters_[1] = &from_;
  } else {
    kernel_.func = node.kind == NodeKind::kFill ? device.fill : device.counted;
    parameters_[1] = &value_;
    if (node.kind == NodeKind::kCounted) parameters_[3] = &counter_;
  }
  memset_ = {
      .dst = to_, .pitch = 0, .value = value_, .elementSize = 4, .width = words_, .height = 1};
  if (node.kind != NodeKind::kCopy) return;
  // Host memory is named as such, or by the address that device code uses, too.
  const auto names_host = [&](const Place& place) {
    const Memory memory = buffers.of(place).memory;
    return memory == Memory::kPageable || (on_host(memory) && place.buffer % 2 == 0);
  };
  copy_.srcMemoryType = names_host(node.from) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  copy_.dstMemoryType = names_host(node.to) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  if (names_host(node.from))
    copy_.srcHost = reinterpret_cast<const void*>(from_);
  else
    copy_.srcDevice = from_;
  if (names_host(node.to))
    copy_.dstHost = reinterpret_cast<void*>(to_);
  else
    copy_.dstDevice = to_;
  copy_.WidthInBytes = size_t{4} * words_;
  copy_.Height = copy_.Depth = 1;
}

CUgraph Builder::build(std::vector<CUgraphNode>& nodes) const {
  nodes.assign(graph_of().nodes.size(), nullptr);
  if (graph_of().captured) return capture(nodes);
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  add_level(graph, -1, nodes);
  return graph;
}

void Builder::add_level(CUgraph graph, int inside, std::vector<CUgraphNode>& nodes) const {
  const std::vector<Node>& all = graph_of().nodes;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].kept || all[i].inside != inside) continue;
    std::vector<CUgraphNode> after;
    for (const int before : all[i].after) after.push_back(nodes[static_cast<size_t>(before)]);
    if (mistake == Mistake::kEdges) after.clear();
    nodes[i] = add(graph, static_cast<int>(i), after, nodes);
  }
}

CUgraphNode Builder::add(CUgraph graph, int index, const std::vector<CUgraphNode>& after,
                         std::vector<CUgraphNode>& nodes) const {
  const Node node = node_at(program, operation, index);
  const NodeParams params(device, buffers, node, counters[static_cast<size_t>(index)]);
  CUgraphNode added = nullptr;
  switch (node.kind) {
    case NodeKind::kFill:
    case NodeKind::kCounted:
    case NodeKind::kKernelCopy:
      CU(cuGraphAddKernelNode(&added, graph, after.data(), after.size(), &params.kernel()));
      break;
    case NodeKind::kMemset:
      CU(cuGraphAddMemsetNode(&added, graph, after.data(), after.size(), &params.memset(),
                              device.context));
      break;
    case NodeKind::kCopy:
      CU(cuGraphAddMemcpyNode(&added, graph, after.data(), after.size(), &params.copy(),
                              device.context));
      break;
    case NodeKind::kHost: {
      const CUDA_HOST_NODE_PARAMS host = host_node(index, node);
      CU(cuGraphAddHostNode(&added, graph, after.data(), after.size(), &host));
      break;
    }
    case NodeKind::kEmpty:
      CU(cuGraphAddEmptyNode(&added, graph, after.data(), after.size()));
      break;
    case NodeKind::kChild: {
      CUgraph child = nullptr;
      CU(cuGraphCreate(&child, 0));
      add_level(child, index, nodes);
      CU(cuGraphAddChildGraphNode(&added, graph, after.data(), after.size(), child));
      CU(cuGraphDestroy(child));
      break;
    }
    case NodeKind::kRecord:
      CU(cuGraphAddEventRecordNode(&added, graph, after.data(), after.size(),
                                   events[static_cast<size_t>(node.event)]));
      break;
    case NodeKind::kWait:
      CU(cuGraphAddEventWaitNode(&added, graph, after.data(), after.size(),
                                 events[static_cast<size_t>(node.event)]));
      break;
  }
  return added;
}

namespace {

// The node that was captured last in the stream; null: none, or several.
CUgraphNode last_node(CUstream stream) {
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  size_t count = 0;
#if CUDA_VERSION >= 13000
  CU(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, nullptr, &count));
#else
  CU(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, &count));
#endif
  return count == 1 ? *last : nullptr;
}

class Events {
 public:
  explicit Events(size_t count) : events_(count) {
    for (CUevent& event : events_) CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  }
  ~Events() {
    for (const CUevent event : events_) cuEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  CUevent operator[](size_t i) const { return events_[i]; }

 private:
  std::vector<CUevent> events_;
};

}  // namespace

CUgraph Builder::capture(std::vector<CUgraphNode>& nodes) const {
  const std::vector<Node>& all = graph_of().nodes;
  // One behind each node, one at the beginning, one at the end of each lane.
  const Events marks(all.size() + 1 + Graph::kLanes);
  const size_t beginning = all.size(), ends = beginning + 1;
  std::vector<bool> joined(Graph::kLanes);
  joined[0] = true;
  CU(cuStreamBeginCapture(lanes[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuEventRecord(marks[beginning], lanes[0]));
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].kept) continue;
    const auto l = static_cast<size_t>(all[i].lane);
    const CUstream lane = lanes[l];
    if (!joined[l]) CU(cuStreamWaitEvent(lane, marks[beginning], 0));
    joined[l] = true;
    for (const int before : all[i].after) {
      const auto b = static_cast<size_t>(before);
      if (mistake != Mistake::kEdges && all[b].lane != all[i].lane)
        CU(cuStreamWaitEvent(lane, marks[b], 0));
    }
    if (all[i].kind != NodeKind::kEmpty) {
      capture(static_cast<int>(i), lane);
      nodes[i] = last_node(lane);
    }
    CU(cuEventRecord(marks[i], lane));
  }
  for (size_t l = 1; l < joined.size(); ++l) {
    if (!joined[l]) continue;
    CU(cuEventRecord(marks[ends + l], lanes[l]));
    CU(cuStreamWaitEvent(lanes[0], marks[ends + l], 0));
  }
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(lanes[0], &graph));
  return graph;
}

void Builder::capture(int index, CUstream lane) const {
  const Node node = node_at(program, operation, index);
  const NodeParams params(device, buffers, node, counters[static_cast<size_t>(index)]);
  switch (node.kind) {
    case NodeKind::kFill:
    case NodeKind::kCounted:
    case NodeKind::kKernelCopy: {
      const CUDA_KERNEL_NODE_PARAMS& kernel = params.kernel();
      CU(cuLaunchKernel(kernel.func, 1, 1, 1, kernel.blockDimX, 1, 1, 0, lane, kernel.kernelParams,
                        nullptr));
      break;
    }
    case NodeKind::kMemset:
      CU(cuMemsetD32Async(params.memset().dst, node.value, params.memset().width, lane));
      break;
    case NodeKind::kCopy:
      CU(cuMemcpyAsync(buffers.address(node.to), buffers.address(node.from),
                       params.copy().WidthInBytes, lane));
      break;
    case NodeKind::kHost: {
      const CUDA_HOST_NODE_PARAMS host = host_node(index, node);
      CU(cuLaunchHostFunc(lane, host.fn, host.userData));
      break;
    }
    case NodeKind::kRecord:
      CU(cuEventRecordWithFlags(events[static_cast<size_t>(node.event)], lane,
                                CU_EVENT_RECORD_EXTERNAL));
      break;
    case NodeKind::kWait:
      CU(cuStreamWaitEvent(lane, events[static_cast<size_t>(node.event)], CU_EVENT_WAIT_EXTERNAL));
      break;
    case NodeKind::kEmpty:
    case NodeKind::kChild:
      break;
  }
}

}  // namespace fargpu::hunt
