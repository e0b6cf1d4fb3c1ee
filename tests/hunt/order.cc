#include "tests/hunt/order.h"

#include <algorithm>
#include <map>
#include <set>

namespace fargpu::hunt {
namespace {

// Points in an order in which edges only lead forward, each with the set of those before it.
class Points {
 public:
  size_t add() {
    before_.emplace_back();
    return before_.size() - 1;
  }
  void edge(size_t from, size_t to) {
    std::vector<uint64_t>& bits = before_[to];
    const std::vector<uint64_t>& more = before_[from];
    if (bits.size() < from / 64 + 1) bits.resize(from / 64 + 1);
    for (size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
    bits[from / 64] |= uint64_t{1} << (from % 64);
  }
  bool is_before(size_t a, size_t b) const {
    const std::vector<uint64_t>& bits = before_[b];
    return a / 64 < bits.size() && (bits[a / 64] >> (a % 64) & 1) != 0;
  }

 private:
  std::vector<std::vector<uint64_t>> before_;
};

constexpr size_t kNone = SIZE_MAX;

struct Steps {
  size_t begin = kNone, end = kNone;   // of the call
  size_t read = kNone, write = kNone;  // write: also "done" of what only orders
  size_t seen = kNone;                 // what streams see of it that wait for its stream implicitly
  bool submitted = false;              // stands in a stream
};

struct Write {
  size_t point;
  std::vector<uint32_t> values;
};

class Order {
 public:
  explicit Order(const Program& program)
      : program_(program), steps_(program.operations.size()), last_(program.threads, kNone) {}

  Allowed run() {
    Allowed allowed(program_.operations.size());
    // Writes that come after a read in the list may still be unordered to it: first all points.
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      if (program_.kept[i]) place(i);
    }
    collect_values();
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const Operation& operation = program_.operations[i];
      if (!program_.kept[i] || !checks(operation)) continue;
      for (const auto& segments : seen_by(i)) {
        allowed[i].emplace_back(segments.begin(), segments.end());
      }
    }
    return allowed;
  }

 private:
  static bool checks(const Operation& operation) {
    return operation.kind == Kind::kHostRead ||
           (operation.kind == Kind::kHostFunction && operation.reads);
  }

  Memory memory_of(const Place& place) const { return program_.buffers[place.buffer].memory; }

  // Everything earlier in `stream` whose call ended before point `at`; the legacy stream orders
  // itself with all blocking ones (`implicitly`).
  void follow_stream(int stream, size_t before_call, size_t point, size_t self,
                     bool implicitly = true) {
    for (size_t i = 0; i < self; ++i) {
      const Steps& other = steps_[i];
      if (!other.submitted || !points_.is_before(other.end, before_call)) continue;
      const int its = program_.operations[i].stream;
      // A wait may be for nothing, and then does nothing.
      const bool acts = program_.operations[self].kind != Kind::kWaitEvent;
      const bool ordered = acts && ((stream == Program::kLegacy && program_.blocking[its]) ||
                                    (its == Program::kLegacy && program_.blocking[stream]));
      // A stream that was destroyed and one made in its place are two.
      if (its == stream) {
        if (!renewed_between(i, self)) points_.edge(other.write, point);
      } else if (implicitly && ordered && other.seen != kNone) {
        points_.edge(other.seen, point);
      }
    }
  }

  bool renewed_between(size_t first, size_t second) const {
    const int stream = program_.operations[first].stream;
    for (size_t i = first + 1; i < second; ++i) {
      const Operation& operation = program_.operations[i];
      if (program_.kept[i] && operation.kind == Kind::kNewStream && operation.stream == stream)
        return true;
    }
    return false;
  }

  // The record that a wait for `event` is about; kNone: none, or it depends on timing.
  size_t recorded(size_t self, size_t call) const {
    const int event = program_.operations[self].event;
    size_t latest = kNone;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const Operation& operation = program_.operations[i];
      if (!program_.kept[i] || operation.event != event) continue;
      if (operation.kind != Kind::kRecord && operation.kind != Kind::kNewEvent) continue;
      if (i > self) {
        // One that another thread may do earlier than this call.
        if (operation.thread != program_.operations[self].thread) return kNone;
        continue;
      }
      if (!points_.is_before(steps_[i].end, call)) return kNone;
      if (latest != kNone && !points_.is_before(steps_[latest].end, steps_[i].begin)) return kNone;
      latest = i;
    }
    if (latest == kNone || program_.operations[latest].kind == Kind::kNewEvent) return kNone;
    return steps_[latest].write;
  }

  void place(size_t i) {
    const Operation& operation = program_.operations[i];
    Steps& steps = steps_[i];
    steps.begin = points_.add();
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
        steps.read = in_thread(steps.begin);
        break;
      case Kind::kHostWrite:
        steps.write = in_thread(steps.begin);
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
      default:
        break;
    }
    steps.end = points_.add();
    points_.edge(steps.begin, steps.end);
    for (const size_t done : {steps.read, steps.write}) {
      if (done != kNone && !steps.submitted) points_.edge(done, steps.end);
    }
    wait_in_call(i);
    last_[operation.thread] = steps.end;
  }

  size_t in_thread(size_t begin) {
    const size_t point = points_.add();
    points_.edge(begin, point);
    return point;
  }

  void submit(size_t i) {
    const Operation& operation = program_.operations[i];
    Steps& steps = steps_[i];
    steps.submitted = true;
    steps.read = in_thread(steps.begin);
    const bool copies = operation.kind == Kind::kCopy || operation.kind == Kind::kCopy2D ||
                        operation.kind == Kind::kCopyAsync;
    // Bytes of pageable memory may be taken as early as the call. Those of other host memory are
    // taken in the order of the copy's own stream, but not of what it waits for implicitly
    // (measured on an H200: 128 bytes from pinned memory in the legacy stream).
    if (!(copies && memory_of(operation.from) == Memory::kPageable))
      follow_stream(operation.stream, steps.begin, steps.read, i,
                    !(copies && on_host(memory_of(operation.from))));
    if (operation.kind == Kind::kWaitEvent) {
      if (const size_t record = recorded(i, steps.begin); record != kNone) {
        points_.edge(record, steps.read);
        steps.seen = record;
      }
    }
    steps.write = points_.add();
    points_.edge(steps.read, steps.write);
    follow_stream(operation.stream, steps.begin, steps.write, i);
    // A stream is idle while a host function runs, and what waits for it implicitly does not wait
    // for the function (measured: a copy in the legacy stream, an H200); nor for a record after it.
    if (operation.kind != Kind::kHostFunction && operation.kind != Kind::kRecord &&
        operation.kind != Kind::kWaitEvent)
      steps.seen = steps.write;
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
              points_.is_before(steps_[j].end, steps.begin) && !renewed_between(j, i))
            points_.edge(steps_[j].write, steps.end);
        }
        break;
      case Kind::kContextSync:
        for (size_t j = 0; j < i; ++j) {
          if (steps_[j].submitted && points_.is_before(steps_[j].end, steps.begin))
            points_.edge(steps_[j].write, steps.end);
        }
        break;
      case Kind::kEventSync:
        if (const size_t record = recorded(i, steps.begin); record != kNone)
          points_.edge(record, steps.end);
        break;
      default:
        break;
    }
  }

  using Key = std::pair<int, size_t>;  // buffer, segment
  struct Access {
    size_t operation, index;  // index: which segment of the operation
  };

  static bool writes(const Operation& operation) {
    return operation.to.buffer >= 0 && !operation.reads;
  }

  // What an operation writes may depend on what it reads, and that on writes in turn: sets grow
  // until nothing changes.
  void collect_values() {
    std::vector<size_t> writers;
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const Operation& operation = program_.operations[i];
      if (!program_.kept[i] || !writes(operation)) continue;
      writers.push_back(i);
      for (size_t k = 0; k < operation.to.count; ++k) {
        writes_[{operation.to.buffer, operation.to.segment + k * operation.to.stride}].push_back(
            {i, k});
        values_[{i, k}];
        if (operation.from.buffer < 0) values_[{i, k}].insert(operation.value);
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const size_t i : writers) {
        if (program_.operations[i].from.buffer < 0) continue;
        const auto seen = seen_by(i);
        for (size_t k = 0; k < seen.size(); ++k) {
          std::set<uint32_t>& values = values_[{i, k}];
          const size_t before = values.size();
          values.insert(seen[k].begin(), seen[k].end());
          changed |= values.size() != before;
        }
      }
    }
  }

  std::vector<std::set<uint32_t>> seen_by(size_t reader) const {
    const Place& from = program_.operations[reader].from;
    const size_t at = steps_[reader].read;
    std::vector<std::set<uint32_t>> seen(from.count);
    for (size_t k = 0; k < from.count; ++k) {
      static const std::vector<Access> kNothing;
      const auto found = writes_.find({from.buffer, from.segment + k * from.stride});
      const std::vector<Access>& all = found == writes_.end() ? kNothing : found->second;
      bool overwritten = false;  // the zeros of the beginning
      for (const Access& write : all) {
        const size_t point = steps_[write.operation].write;
        if (write.operation == reader || points_.is_before(at, point)) continue;
        overwritten |= points_.is_before(point, at);
        const bool hidden = std::any_of(all.begin(), all.end(), [&](const Access& other) {
          const size_t between = steps_[other.operation].write;
          return points_.is_before(point, between) && points_.is_before(between, at);
        });
        if (hidden) continue;
        const auto& values = values_.at({write.operation, write.index});
        seen[k].insert(values.begin(), values.end());
      }
      if (!overwritten) seen[k].insert(0);
    }
    return seen;
  }

  const Program& program_;
  Points points_;
  std::vector<Steps> steps_;
  std::vector<size_t> last_;  // by thread: where it is
  std::map<Key, std::vector<Access>> writes_;
  std::map<std::pair<size_t, size_t>, std::set<uint32_t>> values_;
};

}  // namespace

Allowed allowed_values(const Program& program) { return Order(program).run(); }

}  // namespace fargpu::hunt
