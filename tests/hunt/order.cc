#include "tests/hunt/order.h"

#include <algorithm>

#include "tests/hunt/points.h"
#include "tests/hunt/values.h"

namespace fargpu::hunt {
namespace {

constexpr size_t kNone = Points::kNone;

struct Steps {
  size_t begin = kNone, end = kNone;   // of the call
  size_t read = kNone, write = kNone;  // write: also "done" of what only orders
  size_t seen = kNone;                 // what streams see of it that wait for its stream implicitly
  bool submitted = false;              // stands in a stream
  int incarnation = 0;                 // which of the streams that were made in one place
};

class Order {
 public:
  explicit Order(const Program& program)
      : program_(program),
        steps_(program.operations.size()),
        last_(static_cast<size_t>(program.threads), kNone),
        incarnations_(static_cast<size_t>(program.streams)),
        launched_(program.graphs.size(), kNone),
        launches_(program.graphs.size()) {}

  Allowed run() {
    // Writes that come after a read in the list may still be unordered to it: first all points.
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      if (program_.kept[i]) place(i);
    }
    Allowed allowed;
    allowed.legal = is_legal();
    const Seen seen = values_seen(accesses_, points_);
    for (size_t i = 0; i < accesses_.size(); ++i) {
      if (accesses_[i].to.buffer >= 0 || accesses_[i].from.buffer < 0) continue;
      std::vector<std::vector<uint32_t>> values;
      for (const auto& segment : seen[i]) values.emplace_back(segment.begin(), segment.end());
      allowed.set(accesses_[i].operation, accesses_[i].node, std::move(values));
    }
    return allowed;
  }

 private:
  Memory memory_of(const Place& place) const { return program_.buffers[place.buffer].memory; }

  // Everything earlier in the stream whose call ended before point `before_call`; the legacy stream
  // orders itself with all blocking ones (`implicitly`).
  void follow_stream(size_t self, size_t before_call, size_t point, bool implicitly = true) {
    const Operation& operation = program_.operations[self];
    const int stream = operation.stream;
    // The latest ones first: they stand for those before them.
    for (size_t i = self; i-- > 0;) {
      const Steps& other = steps_[i];
      if (!other.submitted || !points_.is_before(other.end, before_call)) continue;
      const int its = program_.operations[i].stream;
      // A wait may be for nothing, and then does nothing.
      const bool acts = operation.kind != Kind::kWaitEvent;
      const bool ordered = acts && same_process(its, stream) &&
                           ((program_.is_legacy(stream) && program_.blocking[its]) ||
                            (program_.is_legacy(its) && program_.blocking[stream]));
      // A stream that was destroyed and one made in its place are two.
      if (its == stream) {
        if (other.incarnation == steps_[self].incarnation) points_.edge(other.write, point);
      } else if (implicitly && ordered && other.seen != kNone) {
        points_.edge(other.seen, point);
      }
    }
  }

  bool same_process(int a, int b) const {
    return program_.stream_process[static_cast<size_t>(a)] ==
           program_.stream_process[static_cast<size_t>(b)];
  }

  // Where an operation records `event`; kNone: it does not.
  size_t record_of(size_t i, int event) const {
    const Operation& operation = program_.operations[i];
    if (operation.kind == Kind::kRecord && operation.event == event) return steps_[i].write;
    if (operation.kind != Kind::kLaunch) return kNone;
    const auto found = recorded_by_launch_.find({i, event});
    return found == recorded_by_launch_.end() ? kNone : found->second;
  }
  // The same for one that has no points yet.
  bool records(const Operation& operation, int event) const {
    if (operation.kind == Kind::kRecord) return operation.event == event;
    if (operation.kind != Kind::kLaunch) return false;
    for (const Node& node : program_.graphs[static_cast<size_t>(operation.graph)].nodes) {
      if (node.kept && node.kind == NodeKind::kRecord && node.event == event) return true;
    }
    return false;
  }

  // The record that a wait for `event` is about; kNone: none, or it depends on timing.
  size_t recorded(int event, size_t self, size_t call) const {
    size_t latest = kNone;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const Operation& operation = program_.operations[i];
      const bool renews = operation.kind == Kind::kNewEvent && operation.event == event;
      if (i == self || !program_.kept[i] || !(renews || records(operation, event))) continue;
      if (i > self) {
        // One that another thread may do earlier than this call.
        if (operation.thread != program_.operations[self].thread) return kNone;
        continue;
      }
      if (!points_.is_before(steps_[i].end, call)) return kNone;
      if (latest != kNone && !points_.is_before(steps_[latest].end, steps_[i].begin)) return kNone;
      latest = i;
    }
    return latest == kNone ? kNone : record_of(latest, event);
  }

  void place(size_t i) {
    const Operation& operation = program_.operations[i];
    Steps& steps = steps_[i];
    steps.begin = points_.add();
    steps.incarnation = incarnations_[static_cast<size_t>(operation.stream)];
    if (last_[operation.thread] != kNone) points_.edge(last_[operation.thread], steps.begin);
    if (operation.kind == Kind::kAwait) {
      for (size_t j = 0; j < i; ++j) {
        const Operation& other = program_.operations[j];
        if (program_.kept[j] && other.kind == Kind::kPost && other.token == operation.token)
          points_.edge(steps_[j].end, steps.begin);
      }
    }
    switch (operation.kind) {
      case Kind::kHostRead:
        steps.read = points_.add_after(steps.begin);
        break;
      case Kind::kHostWrite:
        steps.write = points_.add_after(steps.begin);
        break;
      case Kind::kFill:
      case Kind::kKernelCopy:
      case Kind::kMemset:
      case Kind::kCopyAsync:
      case Kind::kHostFunction:
      case Kind::kSpin:
      case Kind::kRecord:
      case Kind::kWaitEvent:
      case Kind::kCopy:
      case Kind::kCopy2D:
        submit(i);
        break;
      case Kind::kLaunch:
        launch(i);
        break;
      case Kind::kNewStream:
        ++incarnations_[static_cast<size_t>(operation.stream)];
        break;
      default:
        break;
    }
    if (operation.to.buffer >= 0 || operation.from.buffer >= 0) add_access(i);
    if (operation.kind == Kind::kSpin) device_works_.push_back({steps.write, steps.write});
    steps.end = points_.add_after(steps.begin);
    if (operation.kind == Kind::kLoad || operation.kind == Kind::kScratch ||
        operation.kind == Kind::kSideContext)
      device_works_.push_back({steps.begin, steps.end});
    for (const size_t done : {steps.read, steps.write}) {
      if (done != kNone && !steps.submitted) points_.edge(done, steps.end);
    }
    wait_in_call(i);
    last_[operation.thread] = steps.end;
  }

  void add_access(size_t i) {
    const Operation& operation = program_.operations[i];
    // Changes of nodes have places, and touch nothing.
    if (operation.kind == Kind::kSetParams) return;
    const Steps& steps = steps_[i];
    if (operation.kind == Kind::kHostRead)
      touch(operation, steps.read, steps.read);
    else if (operation.kind == Kind::kHostWrite)
      touch(operation, steps.write, steps.write);
    else if (operation.kind == Kind::kHostFunction)
      touch(operation, steps.read, steps.write);
    else
      device_works_.push_back({steps.write, steps.write});
    accesses_.push_back({.operation = i,
                         .to = operation.reads ? Place{} : operation.to,
                         .from = operation.from,
                         .value = operation.value,
                         .read = steps.read,
                         .write = steps.write});
  }

  // The host uses memory between two points.
  template <typename Toucher>
  void touch(const Toucher& toucher, size_t first, size_t last) {
    for (const Place& place : {toucher.to, toucher.from}) {
      if (place.buffer >= 0 && memory_of(place) == Memory::kManaged)
        host_touches_.push_back({first, last});
    }
  }

  // Whether the device does nothing while the host uses managed memory.
  bool is_legal() const {
    for (const auto& touch : host_touches_) {
      for (const auto& work : device_works_) {
        if (!points_.is_before(work.last, touch.first) &&
            !points_.is_before(touch.last, work.first))
          return false;
      }
    }
    return true;
  }

  void submit(size_t i) {
    const Operation& operation = program_.operations[i];
    Steps& steps = steps_[i];
    steps.submitted = true;
    steps.read = points_.add_after(steps.begin);
    const bool copies = operation.kind == Kind::kCopy || operation.kind == Kind::kCopy2D ||
                        operation.kind == Kind::kCopyAsync;
    // Bytes of pageable memory may be taken as early as the call. Those of other host memory are
    // taken in the order of the copy's own stream, but not of what it waits for implicitly
    // (measured on an H200: 128 bytes from pinned memory in the legacy stream).
    if (!(copies && memory_of(operation.from) == Memory::kPageable))
      follow_stream(i, steps.begin, steps.read, !(copies && on_host(memory_of(operation.from))));
    if (operation.kind == Kind::kWaitEvent) {
      if (const size_t record = recorded(operation.event, i, steps.begin); record != kNone) {
        points_.edge(record, steps.read);
        steps.seen = record;
      }
    }
    steps.write = points_.add_after(steps.read);
    follow_stream(i, steps.begin, steps.write);
    // A stream is idle while a host function runs, and what waits for it implicitly does not wait
    // for the function (measured: a copy in the legacy stream, an H200); nor for a record after it.
    if (operation.kind != Kind::kHostFunction && operation.kind != Kind::kRecord &&
        operation.kind != Kind::kWaitEvent)
      steps.seen = steps.write;
  }

  // Whether a driver has anything to do for a launch. Launches of an executable graph that has no
  // nodes, or idle ones alone, are not behind each other (measured on an H200).
  bool does_something(size_t graph) const {
    for (const Node& node : program_.graphs[graph].nodes) {
      if (node.kept && node.kind != NodeKind::kEmpty && node.kind != NodeKind::kChild) return true;
    }
    return false;
  }

  // Behind what is in the stream and behind the launch of the same executable graph before. Streams
  // that wait for this one implicitly may wait for less than all of it: it may have host nodes.
  void launch(size_t i) {
    const Operation& operation = program_.operations[i];
    const auto graph = static_cast<size_t>(operation.graph);
    Steps& steps = steps_[i];
    steps.submitted = true;
    steps.read = points_.add_after(steps.begin);
    follow_stream(i, steps.begin, steps.read, /*implicitly=*/false);
    if (launched_[graph] != kNone && does_something(graph))
      points_.edge(steps_[launched_[graph]].write, steps.read);
    const std::vector<Node>& nodes = program_.graphs[graph].nodes;
    std::vector<Ends> ends(nodes.size());
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].kept && nodes[n].inside < 0)
        place_node(i, static_cast<int>(n), steps.read, ends);
    }
    steps.write = points_.add_after(steps.read);
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].kept && nodes[n].inside < 0) points_.edge(ends[n].write, steps.write);
    }
    launched_[graph] = i;
    ++launches_[graph];
  }

  struct Ends {
    size_t read = kNone, write = kNone;
  };

  // `start`: of the launch, or of the child that the node is in.
  void place_node(size_t i, int index, size_t start, std::vector<Ends>& ends) {
    const size_t graph = static_cast<size_t>(program_.operations[i].graph);
    const Node node = node_at(program_, i, index);
    const std::vector<Node>& nodes = program_.graphs[graph].nodes;
    Ends& own = ends[static_cast<size_t>(index)];
    own.read = points_.add_after(start);
    for (const int before : node.after)
      points_.edge(ends[static_cast<size_t>(before)].write, own.read);
    if (node.kind == NodeKind::kWait) {
      const size_t record = recorded(node.event, i, steps_[i].begin);
      if (record != kNone) points_.edge(record, own.read);
    }
    for (size_t n = static_cast<size_t>(index) + 1; n < nodes.size(); ++n) {
      if (nodes[n].kept && nodes[n].inside == index)
        place_node(i, static_cast<int>(n), own.read, ends);
    }
    // Of pageable memory the driver may take the bytes before the node's turn (measured on an H100:
    // before an earlier launch had run).
    const bool early = node.kind == NodeKind::kCopy && memory_of(node.from) == Memory::kPageable;
    const size_t taken = early ? points_.add_after(steps_[i].begin) : own.read;
    own.write = points_.add_after(own.read);
    if (early) points_.edge(taken, own.write);
    for (size_t n = static_cast<size_t>(index) + 1; n < nodes.size(); ++n) {
      if (nodes[n].kept && nodes[n].inside == index) points_.edge(ends[n].write, own.write);
    }
    if (node.kind == NodeKind::kRecord) recorded_by_launch_[{i, node.event}] = own.write;
    if (node.to.buffer < 0 && node.from.buffer < 0) return;
    if (node.kind == NodeKind::kHost)
      touch(node, own.read, own.write);
    else
      device_works_.push_back({own.read, own.write});
    accesses_.push_back({.operation = i,
                         .node = index,
                         .to = node.reads ? Place{} : node.to,
                         .from = node.from,
                         .value = node.value + (counts(node) ? launches_[graph] : 0),
                         .read = taken,
                         .write = own.write});
  }

  // What the end of a call waits for.
  void wait_in_call(size_t i) {
    const Operation& operation = program_.operations[i];
    const Steps& steps = steps_[i];
    switch (operation.kind) {
      case Kind::kCopy:
      case Kind::kCopy2D: {
        const bool from_host = on_host(memory_of(operation.from));
        const bool to_host = on_host(memory_of(operation.to));
        if (from_host || to_host) points_.edge(steps.read, steps.end);
        // Pageable memory: its bytes are taken, they need not have arrived. Device to device: the
        // call does not wait.
        if (to_host || (from_host && memory_of(operation.from) != Memory::kPageable))
          points_.edge(steps.write, steps.end);
        break;
      }
      case Kind::kCopyAsync:
        // Pageable: what was taken may be overwritten.
        if (memory_of(operation.from) == Memory::kPageable) points_.edge(steps.read, steps.end);
        break;
      case Kind::kStreamSync:
        // It is no work itself: what other streams it would be ordered behind does not matter.
        for (size_t j = 0; j < i; ++j) {
          if (steps_[j].submitted && program_.operations[j].stream == operation.stream &&
              points_.is_before(steps_[j].end, steps.begin) &&
              steps_[j].incarnation == steps.incarnation)
            points_.edge(steps_[j].write, steps.end);
        }
        break;
      case Kind::kContextSync:
        for (size_t j = 0; j < i; ++j) {
          if (steps_[j].submitted && points_.is_before(steps_[j].end, steps.begin) &&
              program_.process_of(operation.thread) ==
                  program_.process_of(program_.operations[j].thread))
            points_.edge(steps_[j].write, steps.end);
        }
        break;
      case Kind::kEventSync:
        if (const size_t record = recorded(operation.event, i, steps.begin); record != kNone)
          points_.edge(record, steps.end);
        break;
      default:
        break;
    }
  }

  const Program& program_;
  Points points_;
  std::vector<Steps> steps_;
  std::vector<Access> accesses_;
  std::vector<size_t> last_;        // by thread: where it is
  std::vector<int> incarnations_;   // by stream
  std::vector<size_t> launched_;    // by graph: its last launch
  std::vector<uint32_t> launches_;  // by graph
  struct Span {
    size_t first, last;
  };
  std::vector<Span> host_touches_, device_works_;                // of managed memory; of any
  std::map<std::pair<size_t, int>, size_t> recorded_by_launch_;  // by launch and event
};

}  // namespace

const std::vector<std::vector<uint32_t>>& Allowed::at(size_t operation, int node) const {
  static const std::vector<std::vector<uint32_t>> kNothing;
  const auto found = values_.find({operation, node});
  return found == values_.end() ? kNothing : found->second;
}

bool may_be(const std::vector<uint32_t>& values, uint32_t seen) {
  if (std::binary_search(values.begin(), values.end(), seen)) return true;
  for (uint32_t mask = 0xff; mask != 0; mask <<= 8) {
    if (std::none_of(values.begin(), values.end(),
                     [=](uint32_t value) { return ((value ^ seen) & mask) == 0; }))
      return false;
  }
  return true;
}

Allowed allowed_values(const Program& program) { return Order(program).run(); }

}  // namespace fargpu::hunt
