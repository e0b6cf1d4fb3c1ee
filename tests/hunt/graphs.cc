#include "tests/hunt/graphs.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "tests/hunt/call.h"
#include "tests/hunt/graph_builder.h"

namespace fargpu::hunt {

// What one parameter of a host function points to: the values that the node had when it was made or
// changed.
struct Graphs::HostNode {
  Graphs* graphs;
  Running* running;
  int index;
  Node node;
};

struct Graphs::Running {
  int graph = 0;
  CUgraph source = nullptr;
  CUgraphExec executable = nullptr;
  std::vector<CUgraphNode> nodes;
  std::vector<CUdeviceptr> counters;      // by node; zero: it counts nothing
  std::vector<CUstream> lanes;            // of its captures
  std::deque<HostNode> host_nodes;        // of all versions
  std::vector<size_t> launches;           // operations
  std::vector<std::atomic<size_t>> runs;  // by node; of host nodes
  CUstream wrong_stream = nullptr;        // Mistake::kLaunches
};

Graphs::Graphs(const Device& device, const Program& program, const Allowed& allowed,
               const Buffers& buffers, const std::vector<CUevent>& events, int process,
               Mistake mistake, std::function<void(const std::string&)> fail)
    : device_(device),
      program_(program),
      allowed_(allowed),
      buffers_(buffers),
      events_(events),
      process_(process),
      mistake_(mistake),
      fail_(std::move(fail)) {}

Graphs::~Graphs() = default;

void Graphs::make() {
  for (size_t g = 0; g < program_.graphs.size(); ++g) {
    auto running = std::make_unique<Running>();
    if (program_.process_of(program_.graphs[g].thread) != process_) {
      running_.push_back(nullptr);
      continue;
    }
    running->graph = static_cast<int>(g);
    running->launches = launches_of(program_, static_cast<int>(g));
    const std::vector<Node>& nodes = program_.graphs[g].nodes;
    running->runs = std::vector<std::atomic<size_t>>(nodes.size());
    for (const Node& node : nodes) {
      CUdeviceptr counter = 0;
      if (node.kind == NodeKind::kCounted) {
        CU(cuMemAlloc(&counter, 4));
        CU(cuMemsetD32(counter, 0, 1));
      }
      running->counters.push_back(counter);
    }
    const size_t lanes = program_.graphs[g].captured ? Graph::kLanes : 0;
    running->lanes.resize(lanes);
    for (CUstream& lane : running->lanes) CU(cuStreamCreate(&lane, CU_STREAM_NON_BLOCKING));
    if (mistake_ == Mistake::kLaunches)
      CU(cuStreamCreate(&running->wrong_stream, CU_STREAM_NON_BLOCKING));
    running_.push_back(std::move(running));
  }
}

Graphs::Running& Graphs::of(size_t operation) const {
  return *running_[static_cast<size_t>(program_.operations[operation].graph)];
}

bool Graphs::captures(const Operation& operation) const {
  if (operation.graph < 0) return false;
  const auto graph = static_cast<size_t>(operation.graph);
  const bool builds = operation.kind == Kind::kUpdate || running_[graph]->executable == nullptr;
  return builds && program_.graphs[graph].captured && operation.kind != Kind::kDropGraph;
}

CUgraph Graphs::build(size_t operation, std::vector<CUgraphNode>& nodes) {
  const Running& running = of(operation);
  const Builder builder{.device = device_,
                        .program = program_,
                        .buffers = buffers_,
                        .events = events_,
                        .lanes = running.lanes,
                        .counters = running.counters,
                        .mistake = mistake_,
                        .operation = operation,
                        .host_node = [this, operation](int index, const Node& node) {
                          return host_params(operation, index, node);
                        }};
  return builder.build(nodes);
}

void Graphs::instantiate(size_t operation) {
  Running& running = of(operation);
  if (running.executable != nullptr) return;
  running.source = build(operation, running.nodes);
  CU(cuGraphInstantiate(&running.executable, running.source, 0));
}

void Graphs::launch(size_t operation, CUstream stream) {
  instantiate(operation);
  const Running& running = of(operation);
  CU(cuGraphLaunch(running.executable,
                   mistake_ == Mistake::kLaunches ? running.wrong_stream : stream));
}

void Graphs::upload(size_t operation, CUstream stream) {
  instantiate(operation);
  CU(cuGraphUpload(of(operation).executable, stream));
}

void Graphs::set_params(size_t operation) {
  instantiate(operation);
  Running& running = of(operation);
  const int index = program_.operations[operation].node;
  const auto n = static_cast<size_t>(index);
  const Node node = node_at(program_, operation, index);
  const CUgraphNode handle = running.nodes[n];
  if (!node.kept || handle == nullptr || mistake_ == Mistake::kParams) return;
  const NodeParams params(device_, buffers_, node, running.counters[n]);
  switch (node.kind) {
    case NodeKind::kFill:
    case NodeKind::kCounted:
    case NodeKind::kKernelCopy:
      CU(cuGraphExecKernelNodeSetParams(running.executable, handle, &params.kernel()));
      break;
    case NodeKind::kMemset:
      CU(cuGraphExecMemsetNodeSetParams(running.executable, handle, &params.memset(),
                                        device_.context));
      break;
    case NodeKind::kCopy: {
      // Kinds of memory must stay as they are, and for a captured copy the driver chose them.
      CUDA_MEMCPY3D copy{};
      CU(cuGraphMemcpyNodeGetParams(handle, &copy));
      const CUdeviceptr from = buffers_.address(node.from), to = buffers_.address(node.to);
      if (copy.srcMemoryType == CU_MEMORYTYPE_HOST)
        copy.srcHost = reinterpret_cast<const void*>(from);
      else
        copy.srcDevice = from;
      if (copy.dstMemoryType == CU_MEMORYTYPE_HOST)
        copy.dstHost = reinterpret_cast<void*>(to);
      else
        copy.dstDevice = to;
      CU(cuGraphExecMemcpyNodeSetParams(running.executable, handle, &copy, device_.context));
      break;
    }
    case NodeKind::kHost: {
      const CUDA_HOST_NODE_PARAMS host = host_params(operation, index, node);
      CU(cuGraphExecHostNodeSetParams(running.executable, handle, &host));
      break;
    }
    default:
      break;
  }
}

void Graphs::update(size_t operation) {
  instantiate(operation);
  if (mistake_ == Mistake::kParams) return;
  std::vector<CUgraphNode> nodes;
  const CUgraph newer = build(operation, nodes);
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(of(operation).executable, newer, &info));
  CU(cuGraphDestroy(newer));
}

void Graphs::drop(size_t operation) {
  Running& running = of(operation);
  if (running.executable == nullptr) return;
  CU(cuGraphExecDestroy(running.executable));
  CU(cuGraphDestroy(running.source));
  running.executable = nullptr;
}

void Graphs::unmake() {
  for (const auto& running : running_) {
    if (running == nullptr) continue;
    if (running->executable != nullptr) {
      CU(cuGraphExecDestroy(running->executable));
      CU(cuGraphDestroy(running->source));
    }
    for (const CUstream lane : running->lanes) CU(cuStreamDestroy(lane));
    if (running->wrong_stream != nullptr) CU(cuStreamDestroy(running->wrong_stream));
    for (const CUdeviceptr counter : running->counters) {
      if (counter != 0) CU(cuMemFree(counter));
    }
    const std::vector<Node>& nodes = program_.graphs[static_cast<size_t>(running->graph)].nodes;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (!nodes[n].kept || nodes[n].kind != NodeKind::kHost) continue;
      if (running->runs[n] != running->launches.size())
        fail_("host node " + std::to_string(n) + " of graph " + std::to_string(running->graph) +
              " ran " + std::to_string(running->runs[n]) + " times in " +
              std::to_string(running->launches.size()) + " launches");
    }
  }
}

CUDA_HOST_NODE_PARAMS Graphs::host_params(size_t operation, int index, const Node& node) {
  Running& running = of(operation);
  running.host_nodes.push_back({this, &running, index, node});
  return {.fn = host_node, .userData = &running.host_nodes.back()};
}

void CUDA_CB Graphs::host_node(void* data) {
  const HostNode& call = *static_cast<HostNode*>(data);
  Graphs& graphs = *call.graphs;
  Running& running = *call.running;
  const std::string name =
      "host node " + std::to_string(call.index) + " of graph " + std::to_string(running.graph);
  const size_t run = running.runs[static_cast<size_t>(call.index)]++;
  if (run >= running.launches.size()) return graphs.fail_(name + " ran more than once a launch");
  if ((call.node.value >> 10) % 4 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds((call.node.value >> 10) * 37 % 2000));
  const size_t operation = running.launches[run];
  const Node expected = node_at(graphs.program_, operation, call.index);
  if (expected.version != call.node.version && graphs.mistake_ == Mistake::kNone)
    return graphs.fail_(name + " has other parameters than launch #" + std::to_string(operation));
  if (!call.node.reads) {
    if (graphs.mistake_ != Mistake::kHostNodes)
      graphs.buffers_.write(call.node.to, call.node.value + static_cast<uint32_t>(run));
    return;
  }
  const std::string wrong =
      graphs.buffers_.check(call.node.from, graphs.allowed_.at(operation, call.index));
  if (!wrong.empty())
    graphs.fail_(name + " at launch #" + std::to_string(operation) + ": " + wrong);
}

}  // namespace fargpu::hunt
