// An asynchronous copy reads pinned or registered memory when its stream comes to it, not in the
// call: what the application stores there after the call, before it lets the stream go on, is
// copied. It lets the stream go on by a value in device memory, by one in host memory, and by
// memory that a kernel looks at. Only a copy of a batch that says so reads its source in the call.
#include <functional>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kMost = 5u << 20;

struct Host {
  const char* name;
  unsigned char* memory;
};

CUstream stream, other;
CUfunction spin, store, load_when_told;
CUdeviceptr device, word;
int before_told;
int* told = &before_told;  // later memory that the device reaches
CUdeviceptr told_there;

// Sends some work of no interest: over a network host memory becomes equal then.
void nudge() { CU(launch(store, other, word + 64, 1)); }

void must_be(size_t bytes, int value, const char* memory, const char* way) {
  static unsigned char there[kMost];
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(there, device, bytes));
  for (size_t i = 0; i < bytes; ++i) {
    if (there[i] != value) {
      wrong("%s memory, %zu bytes, stream let go by %s: byte %zu is %d, not %d", memory, bytes, way,
            i, there[i], value);
    }
  }
}

struct Way {
  const char* name;
  std::function<void()> hold, let_go;
};

void each_size(const Host& host, const Way& way) {
  static int value = 0;
  for (const size_t bytes : {size_t{4}, size_t{4096}, size_t{200} << 10, kMost}) {
    step("before a stream is held");
    CU(cuMemsetD8(device, 0, kMost));
    CU(cuMemsetD32(word, 0, 1));
    *told = 0;
    nudge();
    CU(cuCtxSynchronize());
    const int old = ++value, later = ++value;
    std::memset(host.memory, old, bytes);
    step(way.name);
    way.hold();
    CU(cuMemcpyHtoDAsync(device, host.memory, bytes, stream));
    std::memset(host.memory, later, bytes);
    way.let_go();
    must_be(bytes, later, host.name, way.name);
    value %= 200;
  }
}

// The other way round: the source is taken in the call, and may be anything afterwards.
void taken_in_the_call(const Host& host) {
  step("a batch whose sources are read during the call");
  constexpr size_t kEach = 300 << 10;
  CU(cuMemsetD8(device, 0, kMost));
  std::memset(host.memory, 77, 2 * kEach);
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  size_t firsts[] = {0, 1};
  const auto address = reinterpret_cast<CUdeviceptr>(host.memory);
  CUdeviceptr to[] = {device, device + kEach}, from[] = {address, address + kEach};
  size_t sizes[] = {kEach, kEach};
  CU(launch(spin, stream, 200'000u));
  CU(cuMemcpyBatchAsync(to, from, sizes, 2, attributes, firsts, 2, stream));
  std::memset(host.memory + kEach, 78, kEach);
  must_be(2 * kEach, 77, host.name, "itself");
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin"), store = kernel_of(module, "store");
  load_when_told = kernel_of(module, "load_when_told");
  stream = make_stream(), other = make_stream();
  device = device_memory(kMost), word = device_memory(128);
  CU(launch(spin, stream, 1u));
  CU(launch(store, stream, word, 1));
  CU(launch(load_when_told, stream, word, word + 64, word));
  CU(cuCtxSynchronize());
  void *pinned = nullptr, *own = std::aligned_alloc(4096, kMost);
  CU(cuMemHostRegister(own, kMost, 0));
  const Host registered{"registered", static_cast<unsigned char*>(own)};
  const Way by_device{"a value in device memory",
                      [] { CU(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ)); },
                      [] { CU(cuStreamWriteValue32(other, word, 1, 0)); }};
  // First while there is no host memory that the device is known to reach.
  each_size(registered, by_device);
  CU(cuMemHostAlloc(&pinned, kMost, 0));
  void* shared = nullptr;
  const Host both[] = {registered, {"pinned", static_cast<unsigned char*>(pinned)}};
  for (const Host& host : both) each_size(host, by_device);
  CU(cuMemHostAlloc(&shared, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  told = static_cast<int*>(shared);
  CU(cuMemHostGetDevicePointer(&told_there, told, 0));
  const auto tell = [] {
    *static_cast<volatile int*>(told) = 1;
    nudge();
  };
  const Way by_host{
      "a value in host memory",
      [] { CU(cuStreamWaitValue32(stream, told_there, 1, CU_STREAM_WAIT_VALUE_GEQ)); }, tell};
  const Way by_kernel{"a kernel that looks at host memory",
                      [] { CU(launch(load_when_told, stream, told_there, word + 64, word)); },
                      tell};
  for (const Host& host : both) {
    each_size(host, by_host);
    each_size(host, by_kernel);
    taken_in_the_call(host);
  }
  right();
}
