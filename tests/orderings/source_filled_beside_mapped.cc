// An asynchronous copy reads pinned memory when its stream comes to it, also where device code and
// the host speak through other memory: what the application stores in the source after the call,
// before it lets a kernel ahead of the copy go on through mapped memory, is copied. No stream waits
// for a value here, and no device code has the address of the source until the end.
#include <functional>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kMost = 200u << 10;

CUstream stream, other;
CUfunction spin, store, load_when_told;
CUdeviceptr device, word, told_there;
int* told;
unsigned char* source;
size_t length;
int value;

void fill() { std::memset(source, value, length); }
void CUDA_CB fill_in_function(void*) { fill(); }
void CUDA_CB fill_and_tell(void*) {
  fill();
  *static_cast<volatile int*>(told) = 1;
}

void must_be(const char* way) {
  static unsigned char there[kMost];
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(there, device, length));
  for (size_t i = 0; i < length; ++i)
    if (there[i] != value)
      wrong("%s, %zu bytes: byte %zu is %d, not %d", way, length, i, there[i], value);
}

// `go` fills the source and lets the stream go on.
void each_size(const char* way, const std::function<void()>& go, bool is_held = true) {
  for (const size_t bytes : {size_t{4}, size_t{4096}, size_t{8192}, kMost}) {
    step(way);
    length = bytes;
    value = value % 100 + 2;
    std::memset(source, value - 1, length);
    *told = 0;
    CU(cuCtxSynchronize());
    if (is_held) CU(launch(load_when_told, stream, told_there, word, word));
    CU(cuMemcpyHtoDAsync(device, source, length, stream));
    go();
    must_be(way);
    CU(cuCtxSynchronize());
  }
}

// Some copies, each from its own place, and each with bytes of its own.
void several() {
  step("several copies");
  constexpr int kCopies = 300;  // more than are compared
  std::memset(source, 1, 4 * kCopies);
  *told = 0;
  CU(cuCtxSynchronize());
  CU(launch(load_when_told, stream, told_there, word, word));
  for (int i = 0; i < kCopies; ++i)
    CU(cuMemcpyHtoDAsync(device + 4 * i, source + 4 * i, 4, stream));
  int there[kCopies];
  for (int i = 0; i < kCopies; ++i) std::memcpy(source + 4 * i, &i, 4);
  *static_cast<volatile int*>(told) = 1;
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(there, device, sizeof there));
  for (int i = 0; i < kCopies; ++i)
    if (there[i] != i) wrong("several copies: number %d is %d", i, there[i]);
}

void hold_by_function_and_kernel() {
  each_size(
      "a function and a kernel",
      [] {
        CU(launch(load_when_told, stream, told_there, word, word));
        CU(cuLaunchHostFunc(stream, fill_in_function, nullptr));
        CU(cuMemcpyHtoDAsync(device, source, length, stream));
        *static_cast<volatile int*>(told) = 1;
      },
      false);
}

void freed_behind_a_copy() {
  step("memory freed behind a copy");
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_PORTABLE));
  int there = 0, stored = 17;
  std::memcpy(memory, &stored, sizeof stored);
  CU(launch(spin, stream, 20'000u));
  CU(cuMemcpyHtoDAsync(device, memory, sizeof stored, stream));
  CU(cuMemFreeHost(memory));
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(&there, device, sizeof there));
  HOLDS(there == stored);
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin"), store = kernel_of(module, "store");
  load_when_told = kernel_of(module, "load_when_told");
  stream = make_stream(), other = make_stream();
  device = device_memory(kMost), word = device_memory(64);
  for (CUstream each : {stream, other}) CU(launch(store, each, word, 1));
  CU(cuCtxSynchronize());
  void *pinned = nullptr, *mapped = nullptr;
  CU(cuMemHostAlloc(&mapped, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&told_there, mapped, 0));
  CU(cuMemHostAlloc(&pinned, kMost, CU_MEMHOSTALLOC_PORTABLE));
  told = static_cast<int*>(mapped);
  source = static_cast<unsigned char*>(pinned);
  each_size("a store and a launch", [] {
    fill();
    *static_cast<volatile int*>(told) = 1;
    CU(launch(store, other, word + 32, 1));
  });
  each_size("a store and a wait", [] {
    fill();
    *static_cast<volatile int*>(told) = 1;
  });
  each_size("a kernel", [] {
    fill();
    CU(launch(store, other, told_there, 1));
  });
  each_size("a fill", [] {
    fill();
    CU(cuMemsetD32Async(told_there, 1, 1, other));
  });
  each_size("a function", [] { CU(cuLaunchHostFunc(other, fill_and_tell, nullptr)); });
  hold_by_function_and_kernel();
  several();
  freed_behind_a_copy();
  // Now device code has the source, and lets the stream go on by itself.
  const auto there = reinterpret_cast<CUdeviceptr>(source);
  CU(launch(store, other, there, 1));
  CU(cuCtxSynchronize());
  step("a kernel that fills the source");
  *told = 0;
  CU(launch(load_when_told, stream, told_there, word, word));
  CU(cuMemcpyHtoDAsync(device, source, 4, stream));
  CU(launch(store, other, there, 1234));
  CU(launch(store, other, told_there, 1));
  int copied = 0;
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(&copied, device, sizeof copied));
  HOLDS(copied == 1234);
  right();
}
