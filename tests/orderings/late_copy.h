// For the programs about synchronous copies: a copy that stands behind a kernel for a while, from
// pinned and from registered memory.
#pragma once

#include <utility>

#include "tests/orderings/check.h"

constexpr unsigned kBusy = 200'000;  // microseconds

inline CUfunction spin, store, load, load_when_told;
inline CUdeviceptr target, seen;
inline const char* memory_name = "";
inline int* source;

inline CUdeviceptr device_pointer(void* host) {
  CUdeviceptr pointer;
  CU(cuMemHostGetDevicePointer(&pointer, host, 0));
  return pointer;
}

inline int* pinned_words() {
  void* words = nullptr;
  CU(cuMemHostAlloc(&words, 4096, 0));
  std::memset(words, 0, 4096);
  return static_cast<int*>(words);
}

// Sends some work of no interest: over a network host memory becomes equal then.
inline void nudge() {
  static const CUstream stream = make_stream();
  static const CUdeviceptr word = device_memory(64);
  CU(launch(store, stream, word, 1));
}

// Everything is loaded before the device is kept busy.
inline void prepare() {
  begin(30);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin"), store = kernel_of(module, "store");
  load = kernel_of(module, "load"), load_when_told = kernel_of(module, "load_when_told");
  target = device_memory(64), seen = device_memory(64);
  CU(launch(spin, nullptr, 1u));
  CU(launch(load, nullptr, seen, target));
  CU(launch(store, nullptr, seen, 1));
  CU(launch(load_when_told, nullptr, seen, seen, target));
  nudge();
  CU(cuCtxSynchronize());
}

// Runs it with both kinds of memory; first with registered memory alone, when there is no host
// memory that the device is known to reach.
template <typename Test>
void with_each_memory(Test&& test) {
  int* const registered = static_cast<int*>(aligned_alloc(4096, 4096));
  CU(cuMemHostRegister(registered, 4096, 0));
  memory_name = "registered", source = registered;
  test();
  memory_name = "pinned", source = pinned_words();
  test();
  memory_name = "registered, beside pinned", source = registered;
  test();
}

inline void clear() {
  CU(cuMemsetD32(target, 0, 1));
  CU(cuMemsetD32(seen, 0, 1));
  CU(cuCtxSynchronize());
}

// A copy behind a kernel that runs for a while, in the legacy stream.
inline void copy_late(int value) {
  *source = value;
  CU(launch(spin, nullptr, kBusy));
  CU(cuMemcpyHtoD(target, source, sizeof *source));
}

// What a kernel that read the target has left.
inline void must_be_seen(const char* who, int value) {
  CU(cuCtxSynchronize());
  int result = 0;
  CU(cuMemcpyDtoH(&result, seen, sizeof result));
  if (result != value) wrong("%s memory: %s read %d, not %d", memory_name, who, result, value);
}
