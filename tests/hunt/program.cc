#include "tests/hunt/program.h"

#include <algorithm>

namespace fargpu::hunt {
namespace {

const char* name_of(Memory memory) {
  switch (memory) {
    case Memory::kDevice:
      return "device";
    case Memory::kPageable:
      return "pageable";
    case Memory::kPinned:
      return "pinned";
    case Memory::kRegistered:
      return "registered";
    case Memory::kMapped:
      return "mapped";
    case Memory::kManaged:
      return "managed";
  }
  return "?";
}

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {
      "fill",       "kernel copy",  "memset",        "copy async", "copy",        "copy 2d",
      "host write", "host read",    "host function", "spin",       "record",      "wait event",
      "event sync", "stream sync",  "context sync",  "new stream", "new event",   "load image",
      "scratch",    "side context", "post",          "await",      "instantiate", "launch",
      "upload",     "set params",   "update",        "drop graph"};
  return kNames[static_cast<size_t>(kind)];
}

const char* name_of(NodeKind kind) {
  static constexpr const char* kNames[] = {"fill",   "counted fill", "kernel copy", "memset",
                                           "copy",   "host",         "empty",       "child",
                                           "record", "wait event"};
  return kNames[static_cast<size_t>(kind)];
}

bool has_stream(Kind kind) {
  switch (kind) {
    case Kind::kHostRead:
    case Kind::kHostWrite:
    case Kind::kEventSync:
    case Kind::kNewEvent:
    case Kind::kContextSync:
    case Kind::kLoad:
    case Kind::kScratch:
    case Kind::kSideContext:
    case Kind::kPost:
    case Kind::kAwait:
    case Kind::kInstantiate:
    case Kind::kSetParams:
    case Kind::kUpdate:
    case Kind::kDropGraph:
      return false;
    default:
      return true;
  }
}

std::string text_of(const Program& program, const Place& place) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(place.buffer)];
  std::string text = std::string(name_of(buffer.memory)) + std::to_string(place.buffer) + "[" +
                     std::to_string(place.segment) + " +" + std::to_string(place.count);
  if (place.stride != 1) text += " by " + std::to_string(place.stride);
  return text + "]";
}

std::string text_of(const Program& program, const Place& to, const Place& from) {
  std::string text;
  if (to.buffer >= 0) text += " to " + text_of(program, to);
  if (from.buffer >= 0) text += " from " + text_of(program, from);
  return text;
}

std::string describe_node(const Program& program, const Graph& graph, size_t index) {
  const Node& node = graph.nodes[index];
  std::string text = "node " + std::to_string(index) + " " + name_of(node.kind);
  if (node.inside >= 0) text += " inside " + std::to_string(node.inside);
  if (graph.captured) text += " lane " + std::to_string(node.lane);
  text += text_of(program, node.to, node.from);
  if (node.kind == NodeKind::kRecord || node.kind == NodeKind::kWait)
    text += " event " + std::to_string(node.event);
  if (!node.after.empty()) text += " after";
  for (const int before : node.after) text += " " + std::to_string(before);
  return text;
}

}  // namespace

bool leave_out(Program& program, size_t number) {
  if (number < program.operations.size()) {
    program.kept[number] = false;
    return true;
  }
  number -= program.operations.size();
  for (Graph& graph : program.graphs) {
    if (number >= graph.nodes.size()) {
      number -= graph.nodes.size();
      continue;
    }
    const int gone = static_cast<int>(number);
    graph.nodes[number].kept = false;
    for (size_t i = number + 1; i < graph.nodes.size(); ++i) {
      Node& node = graph.nodes[i];
      if (node.inside >= 0 && !graph.nodes[static_cast<size_t>(node.inside)].kept)
        node.kept = false;
      const auto found = std::find(node.after.begin(), node.after.end(), gone);
      if (found == node.after.end()) continue;
      node.after.erase(found);
      for (const int before : graph.nodes[number].after) {
        if (std::find(node.after.begin(), node.after.end(), before) == node.after.end())
          node.after.push_back(before);
      }
    }
    return true;
  }
  return false;
}

Node node_at(const Program& program, size_t operation, int node) {
  const int graph = program.operations[operation].graph;
  Node result = program.graphs[static_cast<size_t>(graph)].nodes[static_cast<size_t>(node)];
  for (size_t i = 0; i <= operation; ++i) {
    const Operation& change = program.operations[i];
    if (!program.kept[i] || change.graph != graph) continue;
    if (change.kind == Kind::kUpdate) {
      // A value of its own for each node, with room for as many launches as there may be.
      result.value = change.value + (static_cast<uint32_t>(node) << 10);
    } else if (change.kind == Kind::kSetParams && change.node == node) {
      result.value = change.value;
      if (change.to.buffer >= 0) result.to = change.to;
      if (change.from.buffer >= 0) result.from = change.from;
    } else {
      continue;
    }
    result.version = i;
  }
  return result;
}

std::vector<size_t> launches_of(const Program& program, int graph) {
  std::vector<size_t> launches;
  for (size_t i = 0; i < program.operations.size(); ++i) {
    const Operation& operation = program.operations[i];
    if (program.kept[i] && operation.kind == Kind::kLaunch && operation.graph == graph)
      launches.push_back(i);
  }
  return launches;
}

std::string describe(const Program& program, size_t index) {
  const Operation& operation = program.operations[index];
  std::string text = "#" + std::to_string(index) + " thread " + std::to_string(operation.thread) +
                     ": " + name_of(operation.kind) +
                     text_of(program, operation.to, operation.from);
  if (operation.graph >= 0) text += " graph " + std::to_string(operation.graph);
  if (operation.node >= 0) text += " node " + std::to_string(operation.node);
  if (has_stream(operation.kind)) {
    text += " stream " + std::to_string(operation.stream);
    if (program.is_legacy(operation.stream))
      text += " (legacy)";
    else if (program.blocking[static_cast<size_t>(operation.stream)])
      text += " (blocking)";
  }
  if (operation.kind == Kind::kRecord || operation.kind == Kind::kWaitEvent ||
      operation.kind == Kind::kEventSync || operation.kind == Kind::kNewEvent)
    text += " event " + std::to_string(operation.event);
  if (operation.kind == Kind::kPost || operation.kind == Kind::kAwait)
    text += " token " + std::to_string(operation.token);
  if (operation.kind == Kind::kSpin) text += " " + std::to_string(operation.value) + " us";
  if (operation.hold > 0) text += " " + std::to_string(operation.hold) + " ms";
  return text;
}

std::string describe(const Program& program) {
  std::string text = "seed " + std::to_string(program.seed) + "\n";
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    text += std::string("buffer ") + name_of(buffer.memory) + std::to_string(i) + ": " +
            std::to_string(buffer.segments) + " segments of " + std::to_string(buffer.words) +
            " words";
    if (buffer.shared) text += ", shared";
    text += program.processes > 1 ? " of process " + std::to_string(buffer.process) + "\n" : "\n";
  }
  if (program.processes > 1) {
    text += program.leaves ? "two processes, of which one leaves early\n" : "two processes\n";
    for (size_t i = 0; i < program.event_shared.size(); ++i) {
      if (program.event_shared[i])
        text += "event " + std::to_string(i) + ": shared, of process " +
                std::to_string(program.event_process[i]) + "\n";
    }
  }
  text += std::string("image: ") + std::to_string(program.image_bytes >> 20) + " MiB\n";
  size_t number = program.operations.size();
  for (size_t i = 0; i < program.graphs.size(); ++i) {
    const Graph& graph = program.graphs[i];
    text += "graph " + std::to_string(i) + " of thread " + std::to_string(graph.thread) +
            (graph.captured ? ", captured" : "") + (graph.quiet ? ", quiet\n" : "\n");
    for (size_t n = 0; n < graph.nodes.size(); ++n, ++number) {
      if (graph.nodes[n].kept)
        text += "#" + std::to_string(number) + "   " + describe_node(program, graph, n) + "\n";
    }
  }
  for (size_t i = 0; i < program.operations.size(); ++i) {
    if (program.kept[i]) text += describe(program, i) + "\n";
  }
  return text;
}

}  // namespace fargpu::hunt
