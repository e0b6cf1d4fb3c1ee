#include <algorithm>
#include <random>

#include "tests/hunt/program.h"

namespace fargpu::hunt {
namespace {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) { program_.seed = seed; }

  Program run() {
    program_.threads = pick(1, 4);
    // The legacy stream, shared ones, and one for each thread, which only that thread uses.
    const int shared = pick(1, 3);
    shared_streams_ = 1 + shared;
    program_.streams = shared_streams_ + program_.threads;
    for (int i = 0; i < program_.streams; ++i) program_.blocking.push_back(i != 0 && chance(3));
    shared_events_ = pick(1, 3);
    program_.events = shared_events_ + program_.threads;
    // Otherwise device code uses device memory alone: much may be quicker then.
    shares_memory_ = !chance(4);
    // A large image travels in several pieces, and in more than one thread's at once.
    const bool large_image = program_.threads > 1 && chance(30);
    program_.image_bytes = large_image ? 20u << 20 : 1u << 20;
    make_buffers();
    if (chance(2)) make_graphs();
    const bool pipelined = chance(5);
    const int operations = pick(8, 28) * program_.threads;
    const int meeting = large_image ? pick(0, operations - 1) : -1;
    const int pipeline = pipelined ? pick(0, operations - 1) : -1;
    for (int i = 0; i < operations; ++i) {
      if (i == meeting) add_loads_that_meet();
      if (i == pipeline) add_pipeline(pick(0, program_.threads - 1));
      add_one(pick(0, program_.threads - 1));
    }
    finish();
    program_.kept.assign(program_.operations.size(), true);
    return std::move(program_);
  }

 private:
  int pick(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(int one_of) { return pick(1, one_of) == 1; }

  void make_buffers() {
    constexpr Memory kKinds[] = {Memory::kDevice, Memory::kDevice,     Memory::kPageable,
                                 Memory::kPinned, Memory::kRegistered, Memory::kMapped};
    for (const Memory memory : kKinds) {
      if (memory == Memory::kMapped && !shares_memory_) continue;
      const int copies = memory == Memory::kMapped ? 1 : pick(1, 2);
      for (int i = 0; i < copies; ++i) {
        Buffer buffer{.memory = memory, .segments = static_cast<size_t>(pick(2, 8)), .words = 16};
        // Around the sizes at which copies go another way: 64 KiB, 256 KiB, 4 MiB.
        if (memory != Memory::kMapped && chance(3)) buffer.words = chance(2) ? 6000 : 20000;
        // Mirrors of megabytes of small numbers take seconds to compare in a debug build.
        if (!on_device(memory) || memory == Memory::kDevice) {
          if (chance(12)) buffer.words = 400000;
        }
        program_.buffers.push_back(buffer);
      }
    }
  }

  // Whether kernels of this program use the buffer.
  bool for_kernels(const Buffer& buffer) const {
    return buffer.memory == Memory::kDevice || (shares_memory_ && on_device(buffer.memory));
  }

  int some_stream(int thread) {
    const int choice = pick(0, shared_streams_ + 1);
    return choice >= shared_streams_ ? shared_streams_ + thread : choice;
  }
  int own_or_shared_event(int thread) {
    return chance(2) ? pick(0, shared_events_ - 1) : shared_events_ + thread;
  }

  template <typename Predicate>
  int some_buffer(Predicate&& fits) {
    std::vector<int> found;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (fits(program_.buffers[i])) found.push_back(static_cast<int>(i));
    }
    return found.empty() ? -1
                         : found[static_cast<size_t>(pick(0, static_cast<int>(found.size()) - 1))];
  }

  Place some_place(int buffer, size_t most = 3) {
    const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
    Place place{.buffer = buffer};
    place.count = static_cast<size_t>(pick(1, static_cast<int>(std::min(most, b.segments))));
    place.segment = static_cast<size_t>(pick(0, static_cast<int>(b.segments - place.count)));
    return place;
  }

  // Two places of one shape in different buffers, which `fit` together.
  template <typename Fits, typename FitTogether>
  bool two_places(Place& to, Place& from, Fits&& fits, FitTogether&& fit_together) {
    const int source_index = some_buffer(fits);
    if (source_index < 0) return false;
    const Buffer& source = program_.buffers[static_cast<size_t>(source_index)];
    const int target_index = some_buffer([&](const Buffer& b) {
      return &b != &source && b.words == source.words && fits(b) && fit_together(b, source);
    });
    if (target_index < 0) return false;
    const Buffer& target = program_.buffers[static_cast<size_t>(target_index)];
    from = some_place(source_index, std::min<size_t>(3, target.segments));
    to = {.buffer = target_index, .count = from.count};
    to.segment = static_cast<size_t>(pick(0, static_cast<int>(target.segments - to.count)));
    return true;
  }
  bool places_for_kernel(Place& to, Place& from) {
    return two_places(
        to, from, [this](const Buffer& b) { return for_kernels(b); },
        [](const Buffer&, const Buffer&) { return true; });
  }
  bool places_for_copy(Place& to, Place& from) {
    return two_places(
        to, from, [](const Buffer&) { return true; },
        [](const Buffer& a, const Buffer& b) {
          return a.memory == Memory::kDevice || b.memory == Memory::kDevice;
        });
  }

  // Rows with gaps, where there is room.
  void stretch(Place& place) {
    const size_t room = program_.buffers[static_cast<size_t>(place.buffer)].segments;
    if (place.segment + (place.count - 1) * 2 < room) place.stride = 2;
  }

  void push(Operation operation) {
    if (operation.kind == Kind::kSpin)
      operation.value = static_cast<uint32_t>(pick(0, 1500));
    else if (operation.kind != Kind::kSetParams && operation.kind != Kind::kUpdate)
      operation.value = static_cast<uint32_t>(program_.operations.size() + 1);
    program_.operations.push_back(operation);
  }

  void add_one(int thread) {
    static constexpr struct {
      Kind kind;
      int weight;
    } kWeights[] = {{Kind::kFill, 14},       {Kind::kKernelCopy, 10}, {Kind::kMemset, 4},
                    {Kind::kCopyAsync, 16},  {Kind::kCopy, 12},       {Kind::kCopy2D, 4},
                    {Kind::kHostWrite, 10},  {Kind::kHostRead, 10},   {Kind::kHostFunction, 7},
                    {Kind::kSpin, 6},        {Kind::kRecord, 10},     {Kind::kWaitEvent, 10},
                    {Kind::kEventSync, 6},   {Kind::kStreamSync, 6},  {Kind::kContextSync, 2},
                    {Kind::kNewStream, 2},   {Kind::kNewEvent, 2},    {Kind::kLoad, 1},
                    {Kind::kScratch, 3},     {Kind::kSideContext, 1}, {Kind::kPost, 6},
                    {Kind::kInstantiate, 2}, {Kind::kLaunch, 12},     {Kind::kUpload, 1},
                    {Kind::kSetParams, 6},   {Kind::kUpdate, 2},      {Kind::kDropGraph, 1}};
    int total = 0;
    for (const auto& each : kWeights) total += each.weight;
    int left = pick(1, total);
    Operation operation{.thread = thread};
    for (const auto& each : kWeights) {
      operation.kind = each.kind;
      if ((left -= each.weight) <= 0) break;
    }
    operation.stream = some_stream(thread);
    operation.event = own_or_shared_event(thread);
    if (!complete(operation)) return;
    if (operation.kind == Kind::kLaunch && chance(3))
      add_launches(operation);
    else
      push(operation);
  }

  // What the kind needs; false: not possible with these buffers.
  bool complete(Operation& operation) {
    const auto device = [this](const Buffer& b) { return for_kernels(b); };
    const auto host = [](const Buffer& b) { return on_host(b.memory); };
    switch (operation.kind) {
      case Kind::kFill:
        operation.to = some_place(some_buffer(device));
        return true;
      case Kind::kMemset:
        operation.to =
            some_place(some_buffer([](const Buffer& b) { return b.memory == Memory::kDevice; }));
        return true;
      case Kind::kHostWrite:
        operation.to = some_place(some_buffer(host));
        return true;
      case Kind::kHostRead:
        operation.from = some_place(some_buffer(host));
        return true;
      case Kind::kHostFunction:
        operation.reads = chance(2);
        (operation.reads ? operation.from : operation.to) = some_place(some_buffer(host));
        return true;
      case Kind::kKernelCopy:
        return places_for_kernel(operation.to, operation.from);
      case Kind::kCopy:
      case Kind::kCopy2D:
        operation.stream = Program::kLegacy;
        if (!places_for_copy(operation.to, operation.from)) return false;
        if (operation.kind == Kind::kCopy2D) stretch(operation.from), stretch(operation.to);
        return true;
      case Kind::kCopyAsync:
        return places_for_copy(operation.to, operation.from);
      case Kind::kInstantiate:
      case Kind::kLaunch:
      case Kind::kUpload:
      case Kind::kSetParams:
      case Kind::kUpdate:
      case Kind::kDropGraph:
        return complete_graph_call(operation);
      case Kind::kNewStream:
        operation.stream = shared_streams_ + operation.thread;
        return true;
      case Kind::kNewEvent:
        operation.event = shared_events_ + operation.thread;
        return true;
      case Kind::kPost: {
        if (program_.threads == 1) return false;
        operation.token = program_.tokens++;
        push(operation);
        operation.kind = Kind::kAwait;
        operation.thread = (operation.thread + pick(1, program_.threads - 1)) % program_.threads;
        return true;
      }
      default:
        return true;
    }
  }

  // Values that no operation writes, with room for as many launches as there are.
  uint32_t fresh_values(size_t count) {
    const uint32_t first = next_value_;
    next_value_ += static_cast<uint32_t>(count) << 10;
    return first;
  }

  void make_graphs() {
    const int graphs = pick(1, 4);
    for (int i = 0; i < graphs; ++i) {
      Graph graph;
      if (i > 0 && chance(3)) {  // the same nodes again, with values of their own
        graph = program_.graphs.back();
        for (Node& node : graph.nodes) node.value = fresh_values(1);
      } else {
        graph.thread = pick(0, program_.threads - 1);
        graph.captured = chance(2);
        add_nodes(graph, -1, pick(1, 10), 0);
      }
      program_.graphs.push_back(std::move(graph));
    }
    dropped_.resize(program_.graphs.size());
    launches_.resize(program_.graphs.size());
  }

  // `count` nodes of a level.
  void add_nodes(Graph& graph, int inside, int count, int depth) {
    std::vector<int> level;
    for (int i = 0; i < count; ++i) {
      Node node;
      node.inside = inside;
      if (!complete(graph, node)) continue;
      choose_edges(graph, level, node);
      const int index = static_cast<int>(graph.nodes.size());
      level.push_back(index);
      graph.nodes.push_back(node);
      if (node.kind == NodeKind::kChild && depth < 2)
        add_nodes(graph, index, pick(0, 4), depth + 1);
    }
  }

  void choose_edges(const Graph& graph, const std::vector<int>& level, Node& node) {
    const auto add = [&](int before) {
      if (std::find(node.after.begin(), node.after.end(), before) == node.after.end())
        node.after.push_back(before);
    };
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

  bool complete(const Graph& graph, Node& node) {
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
        node.to = some_place(some_buffer([this](const Buffer& b) { return for_kernels(b); }));
        return true;
      case NodeKind::kKernelCopy:
        return places_for_kernel(node.to, node.from);
      case NodeKind::kMemset:
        node.to =
            some_place(some_buffer([](const Buffer& b) { return b.memory == Memory::kDevice; }));
        return true;
      case NodeKind::kCopy:
        return places_for_copy(node.to, node.from);
      case NodeKind::kHost:
        node.reads = chance(2);
        (node.reads ? node.from : node.to) =
            some_place(some_buffer([](const Buffer& b) { return on_host(b.memory); }));
        return true;
      case NodeKind::kChild:
        return !graph.captured;  // a stream cannot be captured into one
      case NodeKind::kRecord:
      case NodeKind::kWait:
        node.event = pick(0, shared_events_ - 1);
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

  bool complete_graph_call(Operation& operation) {
    std::vector<int> own;
    for (size_t i = 0; i < program_.graphs.size(); ++i) {
      if (program_.graphs[i].thread == operation.thread && !dropped_[i])
        own.push_back(static_cast<int>(i));
    }
    if (own.empty()) return false;
    operation.graph = own[static_cast<size_t>(pick(0, static_cast<int>(own.size()) - 1))];
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
  bool may_launch(int graph) { return ++launches_[static_cast<size_t>(graph)] < 1000; }

  // New values, and other segments of the same buffers.
  bool change_node(Operation& operation) {
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
  void add_launches(const Operation& launch) {
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

  // Double buffering: host functions fill the next buffer and check the last one, copies and
  // kernels run in between in streams of their own, and the thread waits for nothing.
  void add_pipeline(int thread) {
    static constexpr int kDepths[] = {1, 2, 3, 5, 10, 20, 40, 80, 200};
    static constexpr Memory kHost[] = {Memory::kPinned, Memory::kRegistered, Memory::kMapped};
    const int depth = kDepths[pick(0, std::size(kDepths) - 1)];
    const size_t words = chance(3) ? 20000 : chance(2) ? 1000 : 16;
    const int first_event = program_.events;
    program_.events += 6;
    const auto event = [&](int which, int k) { return first_event + which * 2 + k % 2; };
    const auto new_buffer = [&](Memory memory) {
      program_.buffers.push_back({memory, 2, words});
      return static_cast<int>(program_.buffers.size()) - 1;
    };
    const int in = new_buffer(kHost[pick(0, shares_memory_ ? 2 : 1)]);
    const int device_in = new_buffer(Memory::kDevice), device_out = new_buffer(Memory::kDevice);
    const int out = new_buffer(kHost[pick(0, shares_memory_ ? 2 : 1)]);
    const auto some = [&] {
      return chance(3) ? shared_streams_ + thread : pick(1, shared_streams_ - 1);
    };
    const int up = some(), work = some(), down = some();
    if (chance(2)) {
      push({.kind = Kind::kHostFunction,
            .thread = thread,
            .stream = up,
            .hold = static_cast<uint32_t>(pick(1, 100))});
    }
    enum Events { kUploaded, kWorked, kDownloaded };
    for (int k = 0; k < depth; ++k) {
      const auto half = [&](int buffer) {
        return Place{.buffer = buffer, .segment = static_cast<size_t>(k % 2), .count = 1};
      };
      const auto mark = [&](Kind kind, int stream, Events which) {
        push({.kind = kind, .thread = thread, .stream = stream, .event = event(which, k)});
      };
      if (k >= 2) mark(Kind::kWaitEvent, up, kWorked);
      push({.kind = Kind::kHostFunction, .thread = thread, .stream = up, .to = half(in)});
      push({.kind = Kind::kCopyAsync,
            .thread = thread,
            .stream = up,
            .to = half(device_in),
            .from = half(in)});
      mark(Kind::kRecord, up, kUploaded);
      mark(Kind::kWaitEvent, work, kUploaded);
      if (k >= 2) mark(Kind::kWaitEvent, work, kDownloaded);
      push({.kind = Kind::kKernelCopy,
            .thread = thread,
            .stream = work,
            .to = half(device_out),
            .from = half(device_in)});
      mark(Kind::kRecord, work, kWorked);
      mark(Kind::kWaitEvent, down, kWorked);
      push({.kind = Kind::kCopyAsync,
            .thread = thread,
            .stream = down,
            .to = half(out),
            .from = half(device_out)});
      mark(Kind::kRecord, down, kDownloaded);
      push({.kind = Kind::kHostFunction,
            .thread = thread,
            .stream = down,
            .from = half(out),
            .reads = true});
    }
  }

  // Two threads or more load the image, each a moment after the one before.
  void add_loads_that_meet() {
    const int first = pick(0, program_.threads - 1);
    const int loads = pick(2, program_.threads);
    for (int i = 1; i < loads; ++i) {
      const int token = program_.tokens++;
      push({.kind = Kind::kPost, .thread = first, .token = token});
      push({.kind = Kind::kAwait, .thread = (first + i) % program_.threads, .token = token});
    }
    for (int i = 0; i < loads; ++i)
      push({.kind = Kind::kLoad, .thread = (first + i) % program_.threads});
  }

  // Everybody is done, then one thread looks at everything.
  void finish() {
    for (int thread = 1; thread < program_.threads; ++thread) {
      const int token = program_.tokens++;
      push({.kind = Kind::kPost, .thread = thread, .token = token});
      push({.kind = Kind::kAwait, .thread = 0, .token = token});
    }
    push({.kind = Kind::kContextSync, .thread = 0});
    const size_t made = program_.buffers.size();
    for (size_t i = 0; i < made; ++i) {
      const Buffer buffer = program_.buffers[i];
      const int index = static_cast<int>(i);
      if (on_host(buffer.memory)) {
        push({.kind = Kind::kHostRead,
              .thread = 0,
              .from = {.buffer = index, .count = buffer.segments}});
        continue;
      }
      const int landing = static_cast<int>(program_.buffers.size());
      program_.buffers.push_back({Memory::kPageable, buffer.segments, buffer.words});
      push({.kind = Kind::kCopy,
            .thread = 0,
            .to = {.buffer = landing, .count = buffer.segments},
            .from = {.buffer = index, .count = buffer.segments}});
      push({.kind = Kind::kHostRead,
            .thread = 0,
            .from = {.buffer = landing, .count = buffer.segments}});
    }
  }

  std::mt19937_64 random_;
  Program program_;
  int shared_streams_ = 1, shared_events_ = 1;
  bool shares_memory_ = true;
  uint32_t next_value_ = 1 << 20;  // of nodes; operations have smaller ones
  std::vector<bool> dropped_;      // by graph: no call about it follows
  std::vector<int> launches_;      // by graph
};

}  // namespace

Program generate(uint64_t seed) { return Generator(seed).run(); }

}  // namespace fargpu::hunt
