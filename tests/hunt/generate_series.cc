#include "tests/hunt/generator.h"

namespace fargpu::hunt {

// Double buffering: host functions fill the next buffer and check the last one, copies and
// kernels run in between in streams of their own, and the thread waits for nothing.
void Generator::add_pipeline(int thread) {
  static constexpr int kDepths[] = {1, 2, 3, 5, 10, 20, 40, 80, 200};
  static constexpr Memory kHost[] = {Memory::kPinned, Memory::kRegistered, Memory::kMapped};
  const int depth = kDepths[pick(0, std::size(kDepths) - 1)];
  const size_t words = chance(3) ? 20000 : chance(2) ? 1000 : 16;
  const int first_event = program_.events;
  for (int i = 0; i < 6; ++i) new_event(process_, false);
  const auto event = [&](int which, int k) { return first_event + which * 2 + k % 2; };
  const auto make = [&](Memory memory) {
    new_buffer(memory, 2, words, process_);
    return static_cast<int>(program_.buffers.size()) - 1;
  };
  const int in = make(kHost[pick(0, shares_memory_ ? 2 : 1)]);
  const int device_in = make(Memory::kDevice), device_out = make(Memory::kDevice);
  const int out = make(kHost[pick(0, shares_memory_ ? 2 : 1)]);
  const auto some = [&] {
    const int stream = some_stream(thread);
    return program_.is_legacy(stream) ? own_stream(thread) : stream;
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
void Generator::add_loads_that_meet() {
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

// One process writes into shared memory and records an event, for which the other one's stream
// waits before it reads.
void Generator::add_handover(int thread) {
  const int other = one_of_threads(1 - process_);
  std::vector<int> events;
  for (int i = 0; i < first_own_event_; ++i) {
    if (program_.event_shared[static_cast<size_t>(i)]) events.push_back(i);
  }
  const int event = one_of(events), stream = some_stream(thread);
  const int memory = some_buffer([](const Buffer& b) { return b.shared; });
  const Buffer shared = program_.buffers[static_cast<size_t>(memory)];
  const Place place = some_place(memory);
  if (chance(2)) push({.kind = Kind::kSpin, .thread = thread, .stream = stream});
  push({.kind = Kind::kFill, .thread = thread, .stream = stream, .to = place});
  push({.kind = Kind::kRecord, .thread = thread, .stream = stream, .event = event});
  const int token = program_.tokens++;
  push({.kind = Kind::kPost, .thread = thread, .token = token});
  push({.kind = Kind::kAwait, .thread = other, .token = token});
  process_ = 1 - process_;
  const int landing = some_buffer([&](const Buffer& b) {
    return on_host(b.memory) && b.words == shared.words && b.segments >= place.count;
  });
  const int waiting = some_stream(other);
  push({.kind = Kind::kWaitEvent, .thread = other, .stream = waiting, .event = event});
  if (landing >= 0) {
    const Place to{.buffer = landing, .count = place.count};
    push({.kind = Kind::kCopyAsync, .thread = other, .stream = waiting, .to = to, .from = place});
    push({.kind = Kind::kStreamSync, .thread = other, .stream = waiting});
    push({.kind = Kind::kHostRead, .thread = other, .from = to});
  }
  process_ = 1 - process_;
}

// The other threads, or those of one process, are done when `thread` goes on.
void Generator::meet_at(int thread, int process) {
  for (int other = 0; other < program_.threads; ++other) {
    if (other == thread || (process >= 0 && program_.process_of(other) != process)) continue;
    const int token = program_.tokens++;
    push({.kind = Kind::kPost, .thread = other, .token = token});
    push({.kind = Kind::kAwait, .thread = thread, .token = token});
  }
}

// The device is idle and the other threads wait, while this one uses managed memory.
void Generator::add_quiet_time(int thread) {
  meet_at(thread, -1);
  push({.kind = Kind::kContextSync, .thread = thread});
  quiet_ = true;
  const int steps = pick(1, 4);
  for (int i = 0; i < steps; ++i) {
    Operation operation{.kind = chance(2) ? Kind::kHostWrite : Kind::kHostRead, .thread = thread};
    if (chance(2))
      add_quiet_work(thread);
    else if (complete(operation))
      push(operation);
  }
  quiet_ = false;
  for (int other = 0; other < program_.threads; ++other) {
    if (other == thread) continue;
    const int token = program_.tokens++;
    push({.kind = Kind::kPost, .thread = thread, .token = token});
    push({.kind = Kind::kAwait, .thread = other, .token = token});
  }
}

// Work of one stream, whose host functions use managed memory, too.
void Generator::add_quiet_work(int thread) {
  static constexpr Kind kKinds[] = {Kind::kFill,      Kind::kKernelCopy,   Kind::kMemset,
                                    Kind::kCopyAsync, Kind::kHostFunction, Kind::kHostFunction,
                                    Kind::kLaunch,    Kind::kLaunch,       Kind::kSetParams};
  const int stream = own_stream(thread);
  const int count = pick(1, 8);
  for (int i = 0; i < count; ++i) {
    Operation operation{.kind = kKinds[pick(0, std::size(kKinds) - 1)], .thread = thread};
    operation.stream = stream;
    if (complete(operation)) push(operation);
  }
  push({.kind = Kind::kContextSync, .thread = thread});
}

// Everybody is done, then one thread of each process looks at everything.
void Generator::finish() {
  if (program_.processes == 2) {
    meet_at(1, 1);
    look_at_everything(1);
  }
  meet_at(0, -1);
  look_at_everything(0);
}

void Generator::look_at_everything(int thread) {
  process_ = program_.process_of(thread);
  push({.kind = Kind::kContextSync, .thread = thread});
  const size_t made = program_.buffers.size();
  for (size_t i = 0; i < made; ++i) {
    const Buffer buffer = program_.buffers[i];
    if (!is_usable(buffer)) continue;
    const int index = static_cast<int>(i);
    if (buffer.memory != Memory::kDevice) {
      push({.kind = Kind::kHostRead,
            .thread = thread,
            .from = {.buffer = index, .count = buffer.segments}});
      continue;
    }
    const int landing = static_cast<int>(program_.buffers.size());
    new_buffer(Memory::kPageable, buffer.segments, buffer.words, process_);
    push({.kind = Kind::kCopy,
          .thread = thread,
          .stream = process_,
          .to = {.buffer = landing, .count = buffer.segments},
          .from = {.buffer = index, .count = buffer.segments}});
    push({.kind = Kind::kHostRead,
          .thread = thread,
          .from = {.buffer = landing, .count = buffer.segments}});
  }
}

}  // namespace fargpu::hunt
