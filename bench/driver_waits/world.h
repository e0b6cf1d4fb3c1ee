// The context, streams, memory and kernels that cases use, and the stream that is held. Each child
// process has one. Its main thread makes it, holds the stream and releases it; a Caller's thread
// makes the calls that are asked about.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>

namespace driver_waits {

constexpr size_t kBufferBytes = 4 << 20, kMappingBytes = 2 << 20;

// What holds the stream.
enum class Holder { kFunction, kValue, kKernel };
const char* name_of(Holder holder);

// Where the call is made: in the held stream, in one that waits for it, in an independent one, in
// the legacy stream while a blocking stream is held, in a blocking stream while the legacy one is.
// `kNowhere`: it names no stream.
enum class Where { kHeld, kFollower, kOther, kLegacy, kBlocking, kNowhere };
const char* name_of(Where where);

extern const char kPtx[];

// Ends the process with a line on stdout, unless `result` is success.
void require(CUresult result, const char* call);
#define MUST(...) ::driver_waits::require((__VA_ARGS__), #__VA_ARGS__)

inline void CUDA_CB do_nothing(void*) {}
inline void CUDA_CB ignore(CUstream, CUresult, void*) {}
void CUDA_CB hold_function(void* world);  // lasts until World::release()

struct World {
  World();
  World(const World&) = delete;

  void hold(Holder holder, Where where = Where::kHeld);  // chooses `held` and `stream`
  // A new turn: hold_function() lasts, and so do waits until `word` is at least `turn`.
  void begin_hold();
  void release();  // without the driver
  void settle();   // waits for the context
  // Makes the `count` first of `many_streams` wait for the held stream.
  void follow(size_t count);
  CUevent next_event() { return event = events[++event_number % events.size()]; }

  CUdevice device = 0;
  CUmemLocation on_device{CU_MEM_LOCATION_TYPE_DEVICE, 0}, on_host{CU_MEM_LOCATION_TYPE_HOST, 0};
  CUcontext context, second_context;
  CUfunction nothing, many_parameters, spin, nothing_in_second;
  CUgraphExec graph_of_kernel;

  CUstream held, stream;  // the one that is held, the one that a case calls in
  CUstream non_blocking, blocking, follower, other, probe, second_probe, in_second;
  std::array<CUstream, 40> many_streams;
  CUevent behind;  // in the held stream
  CUevent idle, timed, timed_again;
  CUevent event;  // the last of next_event()
  std::array<CUevent, 4200> events;
  size_t event_number = 0;

  // Each of kBufferBytes. Of `part`, 64 KiB are registered.
  CUdeviceptr device_memory, more_device_memory, memory_in_second, managed_address;
  CUdeviceptr registered_on_device;
  char *pinned, *more_pinned, *registered, *part, *shared_file, *managed;
  char *pageable, *more_pageable, *unregistered;
  CUmemAccessDesc readable{on_device, CU_MEM_ACCESS_FLAGS_PROT_READ};
  CUmemAccessDesc writable{on_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemAllocationProp physical_memory{};
  CUmemPoolProps pool_properties{};
  CUmemoryPool pool;
  CUDA_ARRAY_DESCRIPTOR array_shape{64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUDA_ARRAY3D_DESCRIPTOR mipmapped_shape{64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUarray array;

  volatile unsigned* word;  // mapped; the first of 4096 bytes
  CUdeviceptr word_on_device;
  unsigned turn = 0, next_turn = 1;  // of the last hold, and of the next
  std::atomic<bool> function_runs = false, function_may_end = false;
  CUstreamBatchMemOpParams wait_for_turn{};
  void* parameters_of_spin[2] = {&word_on_device, &next_turn};
  std::array<char, 4000> many_bytes{};
  void* parameters_of_many[1] = {many_bytes.data()};

  // What probes make and answer.
  CUdeviceptr probe_memory = 0;
  unsigned probe_flags;
  size_t free_bytes, all_bytes;

  // What calls of a case make, and what they answer.
  CUdeviceptr memory, more_memory;
  void* host_memory;
  CUmodule module;
  CUfunction function;
  CUlibrary library;
  CUkernel kernel;
  CUstream new_stream;
  std::array<CUstream, 40> new_streams;
  CUevent new_event;
  std::array<CUevent, 1000> new_events;
  CUarray new_array;
  CUmipmappedArray mipmapped_array;
  CUtexObject texture;
  CUmemoryPool new_pool;
  CUmemGenericAllocationHandle handle;
  CUgraph graph;
  CUgraphNode root;
  CUgraphExec exec = nullptr, twin = nullptr, again = nullptr;
  CUgraphExecUpdateResultInfo update;
  CUcontext new_context;
  CUdevResource resource;
  CUdevResourceDesc resource_description;
  CUgreenCtx green_context;
  CUipcMemHandle ipc_handle;
  int number, off = 0;
  unsigned flags;
  float milliseconds;
  size_t bytes, more_bytes;
  cuuint64_t pool_bytes, kept_bytes = 64 << 20;
};

inline CUresult launch(CUstream stream, CUfunction function, void** parameters = nullptr) {
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace driver_waits
