// A step is one call of the driver; those that several tables use are here. They work in
// `world.stream`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/driver_waits/world.h"

namespace driver_waits {

using Call = std::function<CUresult(World&)>;

struct Step {
  enum When { kAsked, kUnasked, kUnaskedWhileHeld };
  std::string name;
  Call call;
  When when = kAsked;
};

// What makes, uses and ends an object, in order. Each step that is asked about is a case: the steps
// before it run first, then a stream is held; the steps after it run when it has been released.
using Life = std::vector<Step>;

inline std::string title(std::string_view function, std::string_view detail) {
  return std::string(function).append(detail.empty() ? "" : " ").append(detail);
}

// The step that calls `function` with these arguments, which may use `world` and what is in scope.
#define CALL(function, detail, ...)                                         \
  ::driver_waits::Step {                                                    \
    ::driver_waits::title(#function, detail),                               \
        [=](::driver_waits::World& world) { return function(__VA_ARGS__); } \
  }

inline Step unasked(const Step& step) { return {step.name, step.call, Step::kUnasked}; }
inline Step while_held(const Step& step) { return {step.name, step.call, Step::kUnaskedWhileHeld}; }

struct HostMemory {
  const char* name;
  char* World::*buffer;
};
constexpr HostMemory kPinned{"pinned", &World::pinned}, kPageable{"pageable", &World::pageable};
constexpr HostMemory kRegistered{"registered", &World::registered};

struct Size {
  const char* name;
  size_t bytes;
};
constexpr Size k4Bytes{"4 B", 4}, kMany{"120000 B", 120000}, kMebibyte{"1 MiB", 1 << 20};

inline Step to_device(HostMemory memory, Size size, size_t offset = 0) {
  return CALL(cuMemcpyHtoDAsync, title(memory.name, size.name), world.device_memory,
              world.*memory.buffer + offset, size.bytes, world.stream);
}
inline Step from_device(HostMemory memory, Size size, size_t offset = 0) {
  return CALL(cuMemcpyDtoHAsync, title(memory.name, size.name), world.*memory.buffer + offset,
              world.device_memory, size.bytes, world.stream);
}
inline Step inside_device(Size size) {
  return CALL(cuMemcpyDtoDAsync, size.name, world.device_memory, world.more_device_memory,
              size.bytes, world.stream);
}
Step copy_rows(HostMemory memory, bool to_device, size_t width, size_t rows);
inline Step launch_step() {
  return {"cuLaunchKernel", [](World& world) { return launch(world.stream, world.nothing); }};
}
inline Step large_launch() {
  return {"cuLaunchKernel with 4000 bytes", [](World& world) {
            return launch(world.stream, world.many_parameters, world.parameters_of_many);
          }};
}
inline Step launch_graph() { return CALL(cuGraphLaunch, "", world.graph_of_kernel, world.stream); }
inline Step host_function() {
  return CALL(cuLaunchHostFunc, "", world.stream, do_nothing, nullptr);
}
inline Step callback() { return CALL(cuStreamAddCallback, "", world.stream, ignore, nullptr, 0); }
inline Step record() { return CALL(cuEventRecord, "", world.next_event(), world.stream); }
inline Step wait_for_idle() { return CALL(cuStreamWaitEvent, "", world.stream, world.idle, 0); }
inline Step write_value() {
  return CALL(cuStreamWriteValue32, "", world.stream, world.word_on_device + 128, 1, 0);
}
inline Step wait_for_value() {
  return CALL(cuStreamWaitValue32, "", world.stream, world.word_on_device + 256, 0,
              CU_STREAM_WAIT_VALUE_GEQ);
}
inline Step fill_memory(Size size) {
  return CALL(cuMemsetD8Async, size.name, world.device_memory, 1, size.bytes, world.stream);
}
inline Step fill_rows() {
  return CALL(cuMemsetD2D8Async, "", world.device_memory, 256, 1, 100, 100, world.stream);
}
inline Step allocate(Size size) {
  return CALL(cuMemAllocAsync, size.name, &world.memory, size.bytes, world.stream);
}
inline Step free_here() { return CALL(cuMemFreeAsync, "", world.memory, world.stream); }
inline Step attach(unsigned flags) {
  return CALL(cuStreamAttachMemAsync, "", world.stream, world.managed_address, 0, flags);
}
inline Step prefetch() {
  return CALL(cuMemPrefetchAsync, "", world.managed_address, kBufferBytes, world.on_device, 0,
              world.stream);
}

}  // namespace driver_waits
