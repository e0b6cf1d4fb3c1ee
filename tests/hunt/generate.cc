#include "tests/hunt/generator.h"

namespace fargpu::hunt {

Program Generator::run() {
  choose_threads();
  // Otherwise device code uses device memory alone: much may be quicker then.
  shares_memory_ = !chance(4);
  has_managed_ = program_.processes == 1 && chance(4);
  // A large image travels in several pieces, and in more than one thread's at once.
  const bool large_image = program_.threads > 1 && chance(30);
  program_.image_bytes = large_image ? 20u << 20 : 1u << 20;
  for (int process = 0; process < program_.processes; ++process) make_buffers(process);
  if (chance(2)) make_graphs();
  const bool pipelined = chance(5);
  const int operations = pick(8, 28) * program_.threads;
  const int meeting = large_image ? pick(0, operations - 1) : -1;
  const int pipeline = pipelined ? pick(0, operations - 1) : -1;
  for (int i = 0; i < operations; ++i) {
    const int thread = pick(0, program_.threads - 1);
    process_ = program_.process_of(thread);
    if (i == meeting) add_loads_that_meet();
    if (i == pipeline) add_pipeline(thread);
    if (has_managed_ && chance(12)) add_quiet_time(thread);
    if (program_.processes == 2 && chance(6)) add_handover(thread);
    add_one(thread);
  }
  finish();
  program_.kept.assign(program_.operations.size(), true);
  return std::move(program_);
}

void Generator::choose_threads() {
  program_.processes = chance(6) ? 2 : 1;
  program_.leaves = program_.processes == 2 && chance(3);
  program_.threads = pick(program_.processes, 4);
  const auto add_stream = [this](int process) {
    program_.stream_process.push_back(process);
    program_.blocking.push_back(!program_.is_legacy(program_.streams) && chance(3));
    ++program_.streams;
  };
  program_.streams = program_.events = 0;
  const int shared = pick(1, 3);
  for (int process = 0; process < program_.processes; ++process) add_stream(process);
  for (int process = 0; process < program_.processes; ++process) {
    for (int i = 0; i < shared; ++i) add_stream(process);
    new_event(process, program_.processes == 2);
    const int events = pick(1, 3);
    for (int i = 1; i < events; ++i) new_event(process, program_.processes == 2 && chance(2));
  }
  first_own_stream_ = program_.streams;
  first_own_event_ = program_.events;
  for (int thread = 0; thread < program_.threads; ++thread) {
    add_stream(program_.process_of(thread));
    new_event(program_.process_of(thread), false);
  }
}

int Generator::new_event(int process, bool shared) {
  program_.event_process.push_back(process);
  program_.event_shared.push_back(shared);
  return program_.events++;
}

Buffer& Generator::new_buffer(Memory memory, size_t segments, size_t words, int process) {
  program_.buffers.push_back(
      {.memory = memory, .segments = segments, .words = words, .process = process});
  return program_.buffers.back();
}

void Generator::make_buffers(int process) {
  constexpr Memory kKinds[] = {Memory::kDevice, Memory::kDevice,     Memory::kPageable,
                               Memory::kPinned, Memory::kRegistered, Memory::kMapped,
                               Memory::kManaged};
  bool shares = program_.processes == 2;
  for (const Memory memory : kKinds) {
    if (memory == Memory::kMapped && !shares_memory_) continue;
    if (memory == Memory::kManaged && !has_managed_) continue;
    const int copies = memory == Memory::kMapped ? 1 : pick(1, 2);
    for (int i = 0; i < copies; ++i) {
      Buffer& buffer = new_buffer(memory, static_cast<size_t>(pick(2, 8)), 16, process);
      // Around the sizes at which copies go another way: 64 KiB, 256 KiB, 4 MiB.
      if (memory != Memory::kMapped && chance(3)) buffer.words = chance(2) ? 6000 : 20000;
      // Mirrors of megabytes of small numbers take seconds to compare in a debug build.
      if (!on_device(memory) || memory == Memory::kDevice) {
        if (chance(12)) buffer.words = 400000;
      }
      buffer.shared = memory == Memory::kDevice && shares;
      shares = shares && (memory != Memory::kDevice || !chance(3));
    }
  }
}

int Generator::some_stream(int thread) {
  std::vector<int> usable{own_stream(thread), own_stream(thread)};
  for (int i = 0; i < first_own_stream_; ++i) {
    if (program_.stream_process[static_cast<size_t>(i)] == program_.process_of(thread))
      usable.push_back(i);
  }
  return one_of(usable);
}

int Generator::some_event(int thread) {
  if (chance(2)) return own_event(thread);
  std::vector<int> usable;
  for (int i = 0; i < first_own_event_; ++i) {
    const auto event = static_cast<size_t>(i);
    if (program_.event_shared[event] ||
        program_.event_process[event] == program_.process_of(thread))
      usable.push_back(i);
  }
  return one_of(usable);
}

int Generator::one_of_threads(int process) {
  int thread = pick(0, program_.threads - 1);
  while (program_.process_of(thread) != process) thread = pick(0, program_.threads - 1);
  return thread;
}

Place Generator::some_place(int buffer, size_t most) {
  const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
  Place place{.buffer = buffer};
  place.count = static_cast<size_t>(pick(1, static_cast<int>(std::min(most, b.segments))));
  place.segment = static_cast<size_t>(pick(0, static_cast<int>(b.segments - place.count)));
  return place;
}

// Two places of one shape in different buffers, which `fit` together.
template <typename Fits, typename FitTogether>
bool Generator::two_places(Place& to, Place& from, Fits&& fits, FitTogether&& fit_together) {
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

bool Generator::places_for_kernel(Place& to, Place& from) {
  return two_places(
      to, from, [this](const Buffer& b) { return for_kernels(b); },
      [](const Buffer&, const Buffer&) { return true; });
}

bool Generator::places_for_copy(Place& to, Place& from) {
  return two_places(
      to, from, [](const Buffer&) { return true; },
      [](const Buffer& a, const Buffer& b) { return !on_host(a.memory) || !on_host(b.memory); });
}

Place Generator::place_for_kernel() {
  return some_place(some_buffer([this](const Buffer& b) { return for_kernels(b); }));
}
Place Generator::place_for_memset() {
  return some_place(some_buffer([](const Buffer& b) { return !on_host(b.memory); }));
}
Place Generator::place_for_host(bool managed_too) {
  return some_place(some_buffer([=](const Buffer& b) {
    return on_host(b.memory) || (managed_too && b.memory == Memory::kManaged);
  }));
}

// Rows with gaps, where there is room.
void Generator::stretch(Place& place) {
  const size_t room = program_.buffers[static_cast<size_t>(place.buffer)].segments;
  if (place.segment + (place.count - 1) * 2 < room) place.stride = 2;
}

void Generator::push(Operation operation) {
  if (operation.kind == Kind::kSpin)
    operation.value = static_cast<uint32_t>(pick(0, 1500));
  else if (operation.kind != Kind::kSetParams && operation.kind != Kind::kUpdate)
    operation.value = first_value_ + static_cast<uint32_t>(program_.operations.size() + 1);
  program_.operations.push_back(operation);
}

void Generator::add_one(int thread) {
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
  operation.event = some_event(thread);
  if (!complete(operation)) return;
  if (operation.kind == Kind::kLaunch && chance(3))
    add_launches(operation);
  else
    push(operation);
}

bool Generator::complete(Operation& operation) {
  switch (operation.kind) {
    case Kind::kFill:
      operation.to = place_for_kernel();
      return true;
    case Kind::kMemset:
      operation.to = place_for_memset();
      return true;
    case Kind::kHostWrite:
      operation.to = place_for_host(quiet_);
      return true;
    case Kind::kHostRead:
      operation.from = place_for_host(quiet_);
      return true;
    case Kind::kHostFunction:
      operation.reads = chance(2);
      (operation.reads ? operation.from : operation.to) = place_for_host(quiet_);
      return true;
    case Kind::kKernelCopy:
      return places_for_kernel(operation.to, operation.from);
    case Kind::kCopy:
    case Kind::kCopy2D:
      operation.stream = process_;  // its legacy stream
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
      operation.stream = own_stream(operation.thread);
      return true;
    case Kind::kNewEvent:
      operation.event = own_event(operation.thread);
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

Program generate(uint64_t seed) { return Generator(seed).run(); }

}  // namespace fargpu::hunt
