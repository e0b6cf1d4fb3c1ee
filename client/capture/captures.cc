#include <algorithm>
#include <memory>
#include <utility>

#include "client/capture/capture_state.h"

namespace fargpu::client::capture {
namespace {

// The graph of a capture that came to nothing. One inside of another belongs to a node.
void end_captured(Graph& graph) { graph.owner != nullptr ? clear_graph(graph) : end_graph(graph); }

// Graphs of captures that ended with their stream.
void end_abandoned() {
  std::vector<CUgraph> abandoned;
  {
    const Lock lock;
    abandoned.swap(all().abandoned);
  }
  for (const CUgraph handle : abandoned)
    if (Graph* const graph = find_graph(handle)) end_captured(*graph);
}

bool is_being_captured(CUgraph graph) {
  return std::any_of(all().captures.begin(), all().captures.end(),
                     [graph](const auto& capture) { return capture->graph == graph; });
}

// Behind a plain edge from the start of a kernel that need not have ended. Behind a programmatic
// one it has.
bool is_to_the_end(const CUgraphEdgeData& edge) {
  return edge.from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
         edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

bool joins(const Position& position, CUgraphNode node) {
  for (size_t i = 0; i < position.nodes.size(); ++i)
    if (position.nodes[i] == node && is_to_the_end(position.edges[i])) return true;
  return false;
}

CUresult begin_in(const Named& stream, CUstreamCaptureMode mode, CUgraph graph, bool into_given,
                  Position first) {
  const Lock lock;
  if (of(stream) != nullptr || is_being_captured(graph)) return CUDA_ERROR_ILLEGAL_STATE;
  // Its stream has been destroyed meanwhile.
  const std::vector<CUgraph>& abandoned = all().abandoned;
  if (std::find(abandoned.begin(), abandoned.end(), graph) != abandoned.end())
    return CUDA_ERROR_INVALID_VALUE;
  auto capture = std::make_unique<Capture>();
  capture->id = ++all().ids;
  capture->mode = mode;
  capture->thread = this_thread();
  capture->origin = stream.id;
  capture->graph = graph;
  capture->into_given = into_given;
  capture->members[stream.id] = {stream.context, stream.state, std::move(first)};
  stream.state->capture.store(capture->id);
  all().captures.push_back(std::move(capture));
  open.fetch_add(1);
  return CUDA_SUCCESS;
}

CUresult check_begin(CUstream handle, CUstreamCaptureMode mode, Named* stream) {
  if (const CUresult result = find(handle, stream); result != CUDA_SUCCESS) return result;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  return stream->is_legacy() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

// Whether a legacy stream would have to wait for captured ones.
bool is_blocked(const Named& stream) {
  return std::any_of(all().captures.begin(), all().captures.end(), [&](const auto& capture) {
    return capture::is_blocked(*capture, stream.context);
  });
}

void end_blocked(const Named& stream) {
  for (const auto& capture : all().captures)
    if (capture::is_blocked(*capture, stream.context)) capture->active = false;
}

// What calls that change a capture are answered.
CUresult not_captured(const Named& stream) {
  if (!stream.is_legacy() || !is_blocked(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  end_blocked(stream);
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

bool are_of(const Graph& graph, const std::vector<CUgraphNode>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](CUgraphNode handle) {
    const GraphNode* const node = find_node(handle);
    return node != nullptr && node->graph == &graph;
  });
}

}  // namespace

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
  Named stream;
  if (const CUresult result = check_begin(handle, mode, &stream); result != CUDA_SUCCESS)
    return result;
  const GraphLock graph_lock;
  end_abandoned();
  Graph* graph = nullptr;
  if (const CUresult result = make_graph(&graph); result != CUDA_SUCCESS) return result;
  const CUresult result = begin_in(stream, mode, graph->handle(), /*into_given=*/false, {});
  if (result != CUDA_SUCCESS) end_graph(*graph);
  return result;
}

CUresult begin_to(CUstream handle, CUstreamCaptureMode mode, CUgraph graph_handle,
                  const Position& first) {
  Named stream;
  if (const CUresult result = check_begin(handle, mode, &stream); result != CUDA_SUCCESS)
    return result;
  const GraphLock graph_lock;
  end_abandoned();
  const Graph* const graph = find_graph(graph_handle);
  if (graph == nullptr || !are_of(*graph, first.nodes)) return CUDA_ERROR_INVALID_VALUE;
  return begin_in(stream, mode, graph_handle, /*into_given=*/true, first);
}

CUresult end(CUstream handle, CUgraph* out) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  const GraphLock graph_lock;
  end_abandoned();
  std::unique_ptr<Capture> ended;
  {
    const Lock lock;
    Capture* const capture = of(stream);
    if (capture == nullptr) return not_captured(stream);
    if (capture->origin != stream.id) {
      capture->active = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    const auto place = std::find_if(all().captures.begin(), all().captures.end(),
                                    [&](const auto& each) { return each.get() == capture; });
    ended = std::move(*place);
    all().captures.erase(place);
    ended->leave();
  }
  Graph* const graph = find_graph(ended->graph);
  const Position& reached = ended->members.at(stream.id).position;
  CUresult result = CUDA_SUCCESS;
  if (!ended->active || graph == nullptr) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (ended->thread != this_thread() && ended->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (!std::all_of(ended->last.begin(), ended->last.end(), [&](CUgraphNode node) {
               return find_node(node) == nullptr || joins(reached, node);
             })) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (result == CUDA_SUCCESS && (out != nullptr || ended->into_given)) {
    if (out != nullptr) *out = graph->handle();
  } else if (graph != nullptr) {
    end_captured(*graph);
  }
  return result;
}

CUresult get_info(CUstream handle, Info* info) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  if (!any()) return CUDA_SUCCESS;
  const Lock lock;
  if (stream.is_legacy())
    return is_blocked(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  const Capture* const capture = of(stream);
  if (capture == nullptr) return CUDA_SUCCESS;
  if (!capture->active) {
    info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  info->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  info->id = capture->id;
  info->graph = capture->graph;
  info->position = &capture->members.at(stream.id).position;
  return CUDA_SUCCESS;
}

CUresult check_captured(CUstream handle) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  const Lock lock;
  const Capture* const capture = of(stream);
  if (capture == nullptr) return not_captured(stream);
  return capture->active ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

bool captures_into(const Graph& graph) {
  if (!any()) return false;
  const Lock lock;
  return is_being_captured(graph.handle());
}

void end_abandoned_graphs() {
  if (!any()) return;
  const GraphLock graph_lock;
  end_abandoned();
}

CUresult set_position(CUstream handle, const Position& position, bool keep_old) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  const GraphLock graph_lock;
  const Lock lock;
  Capture* const capture = of(stream);
  if (capture == nullptr) return not_captured(stream);
  if (!capture->active) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const Graph* const graph = find_graph(capture->graph);
  if (graph == nullptr || !are_of(*graph, position.nodes)) return CUDA_ERROR_INVALID_VALUE;
  Position& present = capture->members.at(stream.id).position;
  if (!keep_old) {
    // What is left out on purpose need not be joined.
    const Position old = std::exchange(present, {});
    std::erase_if(capture->last, [&](CUgraphNode node) {
      return std::find(old.nodes.begin(), old.nodes.end(), node) != old.nodes.end();
    });
  }
  present.add(position);
  return CUDA_SUCCESS;
}

void invalidate(CUstream handle) {
  Named stream;
  if (find(handle, &stream) != CUDA_SUCCESS) return;
  const Lock lock;
  if (Capture* const capture = of(stream)) capture->active = false;
}

namespace {

// Only a kernel can let another one begin early.
void make_programmatic(Position& position) {
  for (size_t i = 0; i < position.nodes.size(); ++i) {
    if (find_node(position.nodes[i])->params.type() != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    position.edges[i] = {};
    position.edges[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    position.edges[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
}

}  // namespace

CUresult add(CUstream handle, NodeParams params, bool programmatic, CUgraphNode* out) {
  Named stream;
  if (const CUresult result = find(handle, &stream); result != CUDA_SUCCESS) return result;
  // Held to the end: nodes of one capture come one after another.
  const GraphLock graph_lock;
  Position before;
  Graph* graph = nullptr;
  {
    const Lock lock;
    Capture* const capture = of(stream);
    if (capture == nullptr || !capture->active) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    before = capture->members.at(stream.id).position;
    graph = find_graph(capture->graph);
    if (graph == nullptr) {  // the application has destroyed it
      capture->active = false;
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
  }
  before.erase_if([](CUgraphNode node) { return find_node(node) == nullptr; });
  if (programmatic) make_programmatic(before);
  GraphNode* node = nullptr;
  CUresult result = check_memory(params, nullptr);
  if (result == CUDA_SUCCESS)
    result = add_node(*graph, before.nodes, before.edges.data(), std::move(params), &node,
                      EdgesOf::kCapture);
  if (result != CUDA_SUCCESS) return result;
  if (node->params.type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC) result = allocate(*node);
  if (node->params.type() == CU_GRAPH_NODE_TYPE_MEM_FREE) result = release(*node);
  if (result != CUDA_SUCCESS) {
    end_node(*node);
    return result;
  }
  if (out != nullptr) *out = node->handle();
  const Lock lock;
  Capture* const capture = of(stream);
  if (capture == nullptr) return CUDA_SUCCESS;  // it has ended meanwhile
  capture->members.at(stream.id).position = {{node->handle()}, {CUgraphEdgeData{}}};
  std::erase_if(capture->last, [&](CUgraphNode each) { return joins(before, each); });
  capture->last.push_back(node->handle());
  return CUDA_SUCCESS;
}

CUresult add(CUstream stream, const CUgraphNodeParams& given) {
  NodeParams params;
  const CUresult result = NodeParams::take(given, &params);
  return result == CUDA_SUCCESS ? add(stream, std::move(params), false, nullptr) : result;
}

}  // namespace fargpu::client::capture
