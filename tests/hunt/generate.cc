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
    const int operations = pick(8, 28) * program_.threads;
    const int meeting = large_image ? pick(0, operations - 1) : -1;
    for (int i = 0; i < operations; ++i) {
      if (i == meeting) add_loads_that_meet();
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

  // Two places of one shape in different buffers.
  bool two_places(Operation& operation, bool touched_by_kernels) {
    const int from =
        some_buffer([&](const Buffer& b) { return !touched_by_kernels || for_kernels(b); });
    if (from < 0) return false;
    const Buffer& source = program_.buffers[static_cast<size_t>(from)];
    const int to = some_buffer([&](const Buffer& b) {
      return &b != &source && b.words == source.words &&
             (touched_by_kernels ? for_kernels(b)
                                 : b.memory == Memory::kDevice || source.memory == Memory::kDevice);
    });
    if (to < 0) return false;
    const Buffer& target = program_.buffers[static_cast<size_t>(to)];
    operation.from = some_place(from, std::min<size_t>(3, target.segments));
    operation.to = {.buffer = to, .count = operation.from.count};
    operation.to.segment =
        static_cast<size_t>(pick(0, static_cast<int>(target.segments - operation.to.count)));
    if (operation.kind == Kind::kCopy2D) stretch(operation.from), stretch(operation.to);
    return true;
  }

  // Rows with gaps, where there is room.
  void stretch(Place& place) {
    const size_t room = program_.buffers[static_cast<size_t>(place.buffer)].segments;
    if (place.segment + (place.count - 1) * 2 < room) place.stride = 2;
  }

  void push(Operation operation) {
    operation.value = operation.kind == Kind::kSpin
                          ? static_cast<uint32_t>(pick(0, 1500))
                          : static_cast<uint32_t>(program_.operations.size() + 1);
    program_.operations.push_back(operation);
  }

  void add_one(int thread) {
    static constexpr struct {
      Kind kind;
      int weight;
    } kWeights[] = {{Kind::kFill, 14},      {Kind::kKernelCopy, 10}, {Kind::kMemset, 4},
                    {Kind::kCopyAsync, 16}, {Kind::kCopy, 12},       {Kind::kCopy2D, 4},
                    {Kind::kHostWrite, 10}, {Kind::kHostRead, 10},   {Kind::kHostFunction, 7},
                    {Kind::kSpin, 6},       {Kind::kRecord, 10},     {Kind::kWaitEvent, 10},
                    {Kind::kEventSync, 6},  {Kind::kStreamSync, 6},  {Kind::kContextSync, 2},
                    {Kind::kNewStream, 2},  {Kind::kNewEvent, 2},    {Kind::kLoad, 1},
                    {Kind::kScratch, 3},    {Kind::kSideContext, 1}, {Kind::kPost, 6}};
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
    if (complete(operation)) push(operation);
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
        return two_places(operation, true);
      case Kind::kCopy:
      case Kind::kCopy2D:
        operation.stream = Program::kLegacy;
        return two_places(operation, false);
      case Kind::kCopyAsync:
        return two_places(operation, false);
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
};

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
  }
  return "?";
}

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {
      "fill",       "kernel copy",  "memset",        "copy async", "copy",      "copy 2d",
      "host write", "host read",    "host function", "spin",       "record",    "wait event",
      "event sync", "stream sync",  "context sync",  "new stream", "new event", "load image",
      "scratch",    "side context", "post",          "await"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const Program& program, const Place& place) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(place.buffer)];
  std::string text = std::string(name_of(buffer.memory)) + std::to_string(place.buffer) + "[" +
                     std::to_string(place.segment) + " +" + std::to_string(place.count);
  if (place.stride != 1) text += " by " + std::to_string(place.stride);
  return text + "]";
}

}  // namespace

Program generate(uint64_t seed) { return Generator(seed).run(); }

std::string describe(const Program& program, size_t index) {
  const Operation& operation = program.operations[index];
  std::string text = "#" + std::to_string(index) + " thread " + std::to_string(operation.thread) +
                     ": " + name_of(operation.kind);
  if (operation.to.buffer >= 0) text += " to " + text_of(program, operation.to);
  if (operation.from.buffer >= 0) text += " from " + text_of(program, operation.from);
  switch (operation.kind) {
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
      break;
    default:
      text += " stream " + std::to_string(operation.stream);
      if (operation.stream == Program::kLegacy)
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
  return text;
}

std::string describe(const Program& program) {
  std::string text = "seed " + std::to_string(program.seed) + "\n";
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    text += std::string("buffer ") + name_of(buffer.memory) + std::to_string(i) + ": " +
            std::to_string(buffer.segments) + " segments of " + std::to_string(buffer.words) +
            " words\n";
  }
  text += std::string("image: ") + std::to_string(program.image_bytes >> 20) + " MiB\n";
  for (size_t i = 0; i < program.operations.size(); ++i) {
    if (program.kept[i]) text += describe(program, i) + "\n";
  }
  return text;
}

}  // namespace fargpu::hunt
