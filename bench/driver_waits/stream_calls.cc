// Calls that work in a stream.
#include <array>
#include <initializer_list>

#include "bench/driver_waits/cases.h"
#include "bench/driver_waits/graphs.h"

namespace driver_waits {
namespace {

// For CUDA_MEMCPY2D and CUDA_MEMCPY3D. Rows are `width` bytes and a gap as wide.
template <typename Shape>
Shape describe(World& world, HostMemory memory, bool to_device, size_t width, size_t rows) {
  Shape shape{};
  shape.WidthInBytes = width;
  shape.Height = rows;
  shape.srcPitch = shape.dstPitch = 2 * width;
  shape.srcHost = shape.dstHost = world.*memory.buffer;
  shape.srcDevice = shape.dstDevice = world.device_memory;
  shape.srcArray = shape.dstArray = world.array;
  shape.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  shape.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  return shape;
}

std::string name_of(HostMemory memory, bool to_device, size_t bytes) {
  return std::string(to_device ? "from " : "to ") + memory.name + ", " + std::to_string(bytes) +
         " B";
}

Step copy_box(HostMemory memory, bool to_device, std::array<size_t, 3> size, bool array = false) {
  const auto copy = [=](World& world) {
    auto box = describe<CUDA_MEMCPY3D>(world, memory, to_device, size[0], size[1]);
    box.srcHeight = box.dstHeight = size[1];
    box.Depth = size[2];
    if (array) (to_device ? box.dstMemoryType : box.srcMemoryType) = CU_MEMORYTYPE_ARRAY;
    return cuMemcpy3DAsync(&box, world.stream);
  };
  const std::string name = name_of(memory, to_device, size[0] * size[1] * size[2]);
  return {title("cuMemcpy3DAsync", name + (array ? ", array" : "")), copy};
}

std::vector<Step> copies() {
  constexpr HostMemory kManaged{"managed", &World::managed},
      kPart{"registered in part", &World::part},
      kSharedFile{"registered shared file", &World::shared_file};
  std::vector<Step> steps{to_device(kSharedFile, kMany), from_device(kSharedFile, kMany)};
  const auto add = [&steps](std::initializer_list<Step> more) { steps.insert(steps.end(), more); };
  for (const HostMemory memory : {kPinned, kRegistered, kPageable, kManaged}) {
    for (const Size size : {k4Bytes, Size{"1 KiB", 1024}, Size{"64 KiB", 65536},
                            Size{"64 KiB + 1 B", 65537}, kMany, kMebibyte})
      add({to_device(memory, size), from_device(memory, size)});
  }
  for (const size_t offset : {0, 32 << 10, (64 << 10) - 4}) {
    const std::string name = "from " + std::to_string(offset);
    add({to_device(kPart, {name.c_str(), 100000}, offset),
         from_device(kPart, {name.c_str(), 100000}, offset)});
  }
  for (const bool up : {true, false}) {
    add({copy_rows(kPinned, up, 100, 200), copy_rows(kRegistered, up, 100, 200),
         copy_rows(kPageable, up, 100, 4), copy_rows(kPageable, up, 1000, 500),
         copy_box(kPinned, up, {64, 8, 8}), copy_box(kPageable, up, {64, 8, 8}),
         copy_box(kPageable, up, {256, 64, 16}), copy_box(kPinned, up, {64, 64, 1}, true),
         copy_box(kPageable, up, {64, 64, 1}, true)});
  }
  const auto between = [&add](const char* name, auto to, auto from) {
    add({CALL(cuMemcpyAsync, name, reinterpret_cast<CUdeviceptr>(world.*to),
              reinterpret_cast<CUdeviceptr>(world.*from), 4096, world.stream)});
  };
  between("pinned to pinned", &World::more_pinned, &World::pinned);
  between("pageable to pageable", &World::more_pageable, &World::pageable);
  between("pinned to pageable", &World::pageable, &World::pinned);
  add({CALL(cuMemcpyAsync, "managed to device", world.device_memory, world.managed_address, 1 << 20,
            world.stream),
       CALL(cuMemcpyHtoAAsync, "pinned", world.array, 0, world.pinned, 64, world.stream),
       CALL(cuMemcpyAtoHAsync, "pageable", world.pageable, world.array, 0, 64, world.stream),
       inside_device(k4Bytes), inside_device({"4 MiB", kBufferBytes}),
       CALL(cuMemcpyPeerAsync, "in one context", world.device_memory, world.context,
            world.more_device_memory, world.context, kBufferBytes, world.stream),
       CALL(cuMemcpyPeerAsync, "to another context", world.memory_in_second, world.second_context,
            world.device_memory, world.context, kBufferBytes, world.stream)});
  return steps;
}

CUresult wait_in_second(World& world) {
  cuEventRecord(world.timed_again, world.stream);
  cuCtxSetCurrent(world.second_context);
  const CUresult result = cuStreamWaitEvent(world.in_second, world.timed_again, 0);
  cuCtxSetCurrent(world.context);
  return result;
}

CUresult write_two(World& world) {
  std::array<CUstreamBatchMemOpParams, 2> writes{};
  for (CUstreamBatchMemOpParams& write : writes) {
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = world.word_on_device + 128;
  }
  return cuStreamBatchMemOp(world.stream, writes.size(), writes.data(), 0);
}

CUresult set_policy(World& world) {
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_AUTO;
  return cuStreamSetAttribute(world.stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
}

CUresult capture(World& world) {
  CUresult result = cuStreamBeginCapture(world.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (result == CUDA_SUCCESS) result = launch(world.stream, world.nothing);
  return result != CUDA_SUCCESS ? result : cuStreamEndCapture(world.stream, &world.graph);
}

std::vector<Step> other_steps() {
  return {launch_step(),
          large_launch(),
          launch_graph(),
          host_function(),
          callback(),
          record(),
          wait_for_idle(),
          write_value(),
          wait_for_value(),
          fill_memory(kMebibyte),
          fill_rows(),
          prefetch(),
          CALL(cuLaunchCooperativeKernel, "", world.nothing, 1, 1, 1, 1, 1, 1, 0, world.stream,
               nullptr),
          CALL(cuEventRecord, "timed", world.timed_again, world.stream),
          {"cuStreamWaitEvent in a stream of another context", wait_in_second},
          {"cuStreamBatchMemOp", write_two},
          CALL(cuMemsetD32Async, "4 B", world.device_memory, 1, 1, world.stream),
          CALL(cuMemsetD8Async, "pinned", reinterpret_cast<CUdeviceptr>(world.pinned), 1, 4096,
               world.stream),
          CALL(cuMemsetD8Async, "managed", world.managed_address, 1, 4096, world.stream),
          CALL(cuMemPrefetchAsync, "to the host", world.managed_address, kBufferBytes,
               world.on_host, 0, world.stream),
          CALL(cuGraphUpload, "", world.graph_of_kernel, world.stream),
          CALL(cuStreamQuery, "", world.stream),
          CALL(cuStreamGetPriority, "", world.stream, &world.number),
          {"cuStreamSetAttribute", set_policy}};
}

std::vector<Life> lives() {
  const Step record = while_held(CALL(cuEventRecord, "", world.behind, world.held));
  const Step free = unasked(CALL(cuMemFreeAsync, "", world.memory, world.other));
  const Step destroy = unasked(CALL(cuGraphDestroy, "", world.graph));
  return {
      {record, CALL(cuEventRecord, "again", world.behind, world.stream)},
      {record, CALL(cuStreamWaitEvent, "of the held stream", world.stream, world.behind, 0)},
      {allocate({"4 KiB", 4096}), free},
      {allocate({"256 MiB", 256 << 20}), free},
      {CALL(cuMemAllocFromPoolAsync, "", &world.memory, 1 << 20, world.pool, world.stream), free},
      {unasked(CALL(cuMemAllocAsync, "", &world.memory, 1 << 20, world.other)), free_here()},
      {unasked(CALL(cuMemAlloc, "", &world.memory, 1 << 20)),
       CALL(cuMemFreeAsync, "of cuMemAlloc's memory", world.memory, world.stream)},
      {attach(CU_MEM_ATTACH_SINGLE), unasked(CALL(cuStreamAttachMemAsync, "", world.other,
                                                  world.managed_address, 0, CU_MEM_ATTACH_GLOBAL))},
      {{"capture of a launch", capture}, destroy},
      {unasked(CALL(cuModuleLoadData, "", &world.module, kPtx)),
       unasked(CALL(cuModuleGetFunction, "", &world.function, world.module, "nothing")),
       {"cuLaunchKernel, the first",
        [](World& world) { return launch(world.stream, world.function); }},
       unasked(CALL(cuModuleUnload, "", world.module))},
      {unasked(graph_step("host, kernel, host")),
       unasked(CALL(cuGraphInstantiate, "", &world.exec, world.graph, 0)),
       CALL(cuGraphLaunch, "of (host, kernel, host), the first", world.exec, world.stream),
       unasked(CALL(cuGraphExecDestroy, "", std::exchange(world.exec, nullptr))), destroy}};
}

}  // namespace

Step copy_rows(HostMemory memory, bool to_device, size_t width, size_t rows) {
  const auto copy = [=](World& world) {
    const auto shape = describe<CUDA_MEMCPY2D>(world, memory, to_device, width, rows);
    return cuMemcpy2DAsync(&shape, world.stream);
  };
  return {title("cuMemcpy2DAsync", name_of(memory, to_device, width * rows)), copy};
}

std::vector<Case> stream_cases() {
  std::vector<Situation> situations;
  for (const Holder holder : {Holder::kFunction, Holder::kValue}) {
    for (const Where where :
         {Where::kHeld, Where::kFollower, Where::kOther, Where::kLegacy, Where::kBlocking})
      situations.push_back({holder, where});
  }
  for (const Where where : {Where::kHeld, Where::kOther})
    situations.push_back({Holder::kKernel, where});
  std::vector<Life> all = lives();
  for (const std::vector<Step>& steps : {other_steps(), copies()}) {
    for (const Step& step : steps) all.push_back({step});
  }
  return cases_of(all, situations);
}

}  // namespace driver_waits
