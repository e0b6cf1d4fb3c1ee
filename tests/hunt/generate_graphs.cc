#include "tests/hunt/generator.h"

namespace fargpu::hunt {

// Values that no operation writes, with room for as many launches as there are.
uint32_t Generator::fresh_values(size_t count) {
  const uint32_t first = next_value_;
  next_value_ += static_cast<uint32_t>(count) << 10;
  return first;
}

void Generator::make_graphs() {
  const int graphs = pick(1, 4);
  for (int i = 0; i < graphs; ++i) {
    Graph graph;
    if (i > 0 && chance(3)) {  // the same nodes again, with values of their own
      graph = program_.graphs.back();
      for (Node& node : graph.nodes) node.value = fresh_values(1);
    } else {
      graph.thread = pick(0, program_.threads - 1);
      graph.captured = chance(2);
      graph.quiet = has_managed_ && chance(2);
      process_ = program_.process_of(graph.thread);
      add_nodes(graph, -1, pick(1, 10), 0);
    }
    program_.graphs.push_back(std::move(graph));
  }
  dropped_.resize(program_.graphs.size());
  launches_.resize(program_.graphs.size());
}

// `count` nodes of a level.
void Generator::add_nodes(Graph& graph, int inside, int count, int depth) {
  std::vector<int> level;
  for (int i = 0; i < count; ++i) {
    Node node;
    node.inside = inside;
    if (!complete(graph, node)) continue;
    choose_edges(graph, level, node);
    const int index = static_cast<int>(graph.nodes.size());
    level.push_back(index);
    graph.nodes.push_back(node);
    if (node.kind == NodeKind::kChild && depth < 2) add_nodes(graph, index, pick(0, 4), depth + 1);
  }
}

void Generator::choose_edges(const Graph& graph, const std::vector<int>& level, Node& node) {
  const auto add = [&](int before) {
    if (std::find(node.after.begin(), node.after.end(), before) == node.after.end())
      node.after.push_back(before);
  };
  if (graph.quiet) {
    if (!level.empty()) add(level.back());
    return;
  }
  if (graph.captured) {
    node.lane = pick(0, Graph::kLanes - 1);
    for (size_t i = level.size(); i-- > 0;) {
      if (graph.nodes[static_cast<size_t>(level[i])].lane != node.lane) continue;
      add(level[i]);
      break;
    }
  }
  if (level.empty() || chance(4)) return;
  const int edges = pick(1, 2);
  for (int i = 0; i < edges; ++i) {
    // Most often the latest, so that there are chains.
    const int last = static_cast<int>(level.size()) - 1;
    add(level[static_cast<size_t>(chance(2) ? last : pick(0, last))]);
  }
}

bool Generator::complete(const Graph& graph, Node& node) {
  static constexpr NodeKind kKinds[] = {
      NodeKind::kFill,    NodeKind::kFill,       NodeKind::kCounted,    NodeKind::kCounted,
      NodeKind::kCounted, NodeKind::kKernelCopy, NodeKind::kKernelCopy, NodeKind::kKernelCopy,
      NodeKind::kMemset,  NodeKind::kCopy,       NodeKind::kCopy,       NodeKind::kCopy,
      NodeKind::kCopy,    NodeKind::kHost,       NodeKind::kHost,       NodeKind::kHost,
      NodeKind::kHost,    NodeKind::kHost,       NodeKind::kEmpty,      NodeKind::kChild,
      NodeKind::kRecord,  NodeKind::kWait};
  node.kind = kKinds[pick(0, static_cast<int>(std::size(kKinds)) - 1)];
  node.value = fresh_values(1);
  switch (node.kind) {
    case NodeKind::kFill:
    case NodeKind::kCounted:
      node.to = place_for_kernel();
      return true;
    case NodeKind::kKernelCopy:
      return places_for_kernel(node.to, node.from);
    case NodeKind::kMemset:
      node.to = place_for_memset();
      return true;
    case NodeKind::kCopy:
      return places_for_copy(node.to, node.from);
    case NodeKind::kHost:
      node.reads = chance(2);
      (node.reads ? node.from : node.to) = place_for_host(graph.quiet);
      return true;
    case NodeKind::kChild:
      return !graph.captured;  // a stream cannot be captured into one
    case NodeKind::kRecord:
    case NodeKind::kWait:
      node.event = some_event(graph.thread);
      if (node.event >= first_own_event_ || program_.event_shared[static_cast<size_t>(node.event)])
        return false;  // one that is renewed, or another process's
      // Which record a wait in the same graph is about is not documented.
      return std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
        return (other.kind == NodeKind::kRecord || other.kind == NodeKind::kWait) &&
               other.event == node.event;
      });
    case NodeKind::kEmpty:
      return true;
  }
  return false;
}

bool Generator::complete_graph_call(Operation& operation) {
  std::vector<int> own;
  for (size_t i = 0; i < program_.graphs.size(); ++i) {
    if (program_.graphs[i].thread == operation.thread && !dropped_[i] &&
        (quiet_ || !program_.graphs[i].quiet))
      own.push_back(static_cast<int>(i));
  }
  if (own.empty()) return false;
  operation.graph = one_of(own);
  const Graph& graph = program_.graphs[static_cast<size_t>(operation.graph)];
  switch (operation.kind) {
    case Kind::kLaunch:
      return may_launch(operation.graph);
    case Kind::kUpdate:
      operation.value = fresh_values(graph.nodes.size());
      return true;
    case Kind::kDropGraph:
      dropped_[static_cast<size_t>(operation.graph)] = true;
      return true;
    case Kind::kSetParams:
      return change_node(operation);
    default:
      return true;
  }
}

// Of each graph at most as many as there are values for.
bool Generator::may_launch(int graph) { return ++launches_[static_cast<size_t>(graph)] < 1000; }

// New values, and other segments of the same buffers.
bool Generator::change_node(Operation& operation) {
  const Graph& graph = program_.graphs[static_cast<size_t>(operation.graph)];
  if (graph.nodes.empty()) return false;
  operation.node = pick(0, static_cast<int>(graph.nodes.size()) - 1);
  const Node& node = graph.nodes[static_cast<size_t>(operation.node)];
  const bool has_values = node.to.buffer >= 0 || node.from.buffer >= 0;
  if (!has_values || node.inside >= 0) return false;
  operation.value = fresh_values(1);
  const auto move = [this](const Place& old) {
    Place place = old;
    const size_t segments = program_.buffers[static_cast<size_t>(old.buffer)].segments;
    place.segment = static_cast<size_t>(pick(0, static_cast<int>(segments - old.count)));
    return place;
  };
  if (node.to.buffer >= 0) operation.to = move(node.to);
  if (node.from.buffer >= 0) operation.from = move(node.from);
  return true;
}

// Launches behind each other without a wait, of one graph or two in turn, maybe changed in
// between, maybe while the stream cannot go on.
void Generator::add_launches(const Operation& launch) {
  Operation other = launch;
  if (!complete_graph_call(other)) other = launch;
  if (chance(2))
    push({.kind = Kind::kHostFunction,
          .thread = launch.thread,
          .stream = launch.stream,
          .hold = static_cast<uint32_t>(pick(1, 40))});
  const int count = chance(6) ? pick(20, 150) : pick(2, 8);
  for (int i = 0; i < count; ++i) {
    Operation next = i % 2 == 0 ? launch : other;
    if (!may_launch(next.graph)) return;
    if (chance(6)) next.stream = some_stream(launch.thread);
    push(next);
    if (!chance(4)) continue;
    Operation change{.kind = Kind::kSetParams, .thread = launch.thread, .graph = next.graph};
    if (change_node(change)) push(change);
  }
}

}  // namespace fargpu::hunt
