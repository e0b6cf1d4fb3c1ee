#include "bench/driver_waits/world.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "bench/driver_waits/graphs.h"
#include "bench/driver_waits/steps.h"

namespace driver_waits {

// `spin` ends by itself after 4 s.
const char kPtx[] = R"(
.version 7.5
.target sm_75
.address_size 64
.global .align 4 .u32 variable;
.visible .entry nothing() { ret; }
.visible .entry many_parameters(.param .align 8 .b8 bytes[4000]) { ret; }
.visible .entry spin(.param .u64 word, .param .u32 turn)
{
  .reg .u64 %word, %time, %end; .reg .u32 %value, %turn; .reg .pred %p;
  ld.param.u64 %word, [word]; ld.param.u32 %turn, [turn];
  mov.u64 %time, %globaltimer;
  add.u64 %end, %time, 4000000000;
AGAIN:
  ld.volatile.global.u32 %value, [%word];
  setp.ge.u32 %p, %value, %turn;
  @%p bra DONE;
  mov.u64 %time, %globaltimer;
  setp.lt.u64 %p, %time, %end;
  @%p bra AGAIN;
DONE:
  ret;
}
)";

namespace {

constexpr size_t kRegisteredPart = 64 << 10;
constexpr auto kLongestFunction = std::chrono::seconds(6);

void pause(unsigned microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

char* map(int file = -1) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) require(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
  std::memset(memory, 1, kBufferBytes);
  return static_cast<char*>(memory);
}

char* map_file() {
  const int file = ::memfd_create("driver_waits", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, kBufferBytes) != 0) require(CUDA_ERROR_FILE_NOT_FOUND, "memfd");
  return map(file);
}

char* pin(unsigned flags, size_t bytes = kBufferBytes) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, bytes, flags));
  return static_cast<char*>(memory);
}

CUfunction load(const char* name) {
  CUmodule module;
  CUfunction function;
  MUST(cuModuleLoadData(&module, kPtx));
  MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

void make_second_context(World& world) {
  MUST(cuCtxCreate(&world.second_context, nullptr, 0, world.device));
  world.nothing_in_second = load("nothing");
  MUST(cuStreamCreate(&world.in_second, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&world.memory_in_second, kBufferBytes));
  MUST(launch(world.in_second, world.nothing_in_second));
  MUST(cuCtxSynchronize());
}

void make_memory(World& world) {
  MUST(cuMemAlloc(&world.device_memory, kBufferBytes));
  MUST(cuMemAlloc(&world.more_device_memory, kBufferBytes));
  CUdeviceptr small;
  MUST(cuMemAlloc(&small, 512));  // so that no other of this size is alone in its block
  MUST(cuMemAllocManaged(&world.managed_address, kBufferBytes, CU_MEM_ATTACH_GLOBAL));
  world.managed = reinterpret_cast<char*>(world.managed_address);
  std::memset(world.managed, 1, kBufferBytes);
  world.pinned = pin(0);
  world.more_pinned = pin(CU_MEMHOSTALLOC_PORTABLE);
  for (char** buffer :
       {&world.registered, &world.part, &world.pageable, &world.more_pageable, &world.unregistered})
    *buffer = map();
  world.shared_file = map_file();
  const unsigned mapped = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  MUST(cuMemHostRegister(world.registered, kBufferBytes, mapped));
  MUST(cuMemHostGetDevicePointer(&world.registered_on_device, world.registered, 0));
  MUST(cuMemHostRegister(world.shared_file, kBufferBytes, mapped));
  MUST(cuMemHostRegister(world.part, kRegisteredPart, 0));
  world.word = reinterpret_cast<unsigned*>(pin(CU_MEMHOSTALLOC_DEVICEMAP, 4096));
  *world.word = 0;
  MUST(cuMemHostGetDevicePointer(&world.word_on_device, const_cast<unsigned*>(world.word), 0));
  MUST(cuArrayCreate(&world.array, &world.array_shape));
  world.pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  world.pool_properties.location = world.on_device;
  MUST(cuMemPoolCreate(&world.pool, &world.pool_properties));
  world.physical_memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  world.physical_memory.location = world.on_device;
  world.physical_memory.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// Does everything once, so that the driver loads nothing later.
void warm_up(World& world) {
  for (CUstream stream : {world.non_blocking, world.follower, world.probe, world.other}) {
    world.stream = stream;
    for (const Step& step : {launch_step(), large_launch(), to_device(kPinned, kMebibyte),
                             from_device(kPinned, kMebibyte), inside_device(kMebibyte),
                             fill_memory(kMebibyte), host_function(), launch_graph()})
      require(step.call(world), step.name.c_str());
    MUST(cuStreamSynchronize(stream));
  }
  void* of_spin[] = {&world.word_on_device, &world.turn};
  MUST(launch(world.other, world.spin, of_spin));
  for (CUevent event : {world.idle, world.timed}) MUST(cuEventRecord(event, world.other));
  world.settle();
}

}  // namespace

void require(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("error %d from %s\n", static_cast<int>(result), call);
  std::fflush(stdout);
  ::_exit(1);
}

const char* name_of(Holder holder) {
  return holder == Holder::kFunction ? "function" : holder == Holder::kValue ? "value" : "kernel";
}

const char* name_of(Where where) {
  static constexpr std::array kNames{"held", "follower", "other", "legacy", "blocking", ""};
  return kNames[static_cast<size_t>(where)];
}

void CUDA_CB hold_function(void* user) {
  auto& world = *static_cast<World*>(user);
  world.function_runs = true;
  const auto end = std::chrono::steady_clock::now() + kLongestFunction;
  while (!world.function_may_end && std::chrono::steady_clock::now() < end) pause(100);
  world.function_runs = false;
}

World::World() {
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  make_second_context(*this);
  MUST(cuCtxSetCurrent(context));
  nothing = load("nothing");
  many_parameters = load("many_parameters");
  spin = load("spin");
  for (CUstream* one : {&non_blocking, &follower, &other, &probe, &second_probe})
    MUST(cuStreamCreate(one, CU_STREAM_NON_BLOCKING));
  for (CUstream& one : many_streams) MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  for (CUevent* one : {&behind, &idle}) MUST(cuEventCreate(one, CU_EVENT_DISABLE_TIMING));
  for (CUevent* one : {&timed, &timed_again}) MUST(cuEventCreate(one, CU_EVENT_DEFAULT));
  for (CUevent& one : events) MUST(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
  make_memory(*this);
  MUST(cuGraphInstantiate(&graph_of_kernel, make_graph(*this, "kernel"), 0));
  warm_up(*this);
  held = stream = non_blocking;
}

void World::hold(Holder holder, Where where) {
  held = where == Where::kLegacy     ? blocking
         : where == Where::kBlocking ? CU_STREAM_LEGACY
                                     : non_blocking;
  const std::array places{held, follower, other, CU_STREAM_LEGACY, blocking, other};
  stream = places[static_cast<size_t>(where)];
  begin_hold();
  if (holder == Holder::kFunction) {
    MUST(cuLaunchHostFunc(held, hold_function, this));
    while (!function_runs) pause(20);
  } else if (holder == Holder::kValue) {
    MUST(cuStreamWaitValue32(held, word_on_device, turn, CU_STREAM_WAIT_VALUE_GEQ));
  } else {
    void* parameters[] = {&word_on_device, &turn};
    MUST(launch(held, spin, parameters));
    pause(200);
  }
  if (where == Where::kFollower) {
    MUST(cuEventRecord(behind, held));
    MUST(cuStreamWaitEvent(follower, behind, 0));
  }
}

void World::begin_hold() {
  turn = next_turn++;
  function_may_end = false;
}

void World::release() {
  *word = turn;
  function_may_end = true;
}

void World::settle() { MUST(cuCtxSynchronize()); }

void World::follow(size_t count) {
  MUST(cuEventRecord(behind, held));
  for (size_t i = 0; i < count; ++i) MUST(cuStreamWaitEvent(many_streams[i], behind, 0));
}

}  // namespace driver_waits
