// An asynchronous copy between the device and pinned or registered memory of any size does not wait
// for a kernel before it. A context may go while such copies are under way, and memory afterwards.
#include <string>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 40u << 20;
constexpr unsigned kBusy = 1'500'000;  // microseconds

CUfunction spin;
CUstream stream;
CUdeviceptr device;

unsigned char pattern(size_t i, unsigned seed) {
  return static_cast<unsigned char>(i * 31 + (i >> 8) * 7 + seed);
}

void both_ways(const char* name, unsigned char* host, unsigned seed) {
  for (size_t i = 0; i < kBytes; ++i) host[i] = pattern(i, seed);
  const CUevent passed = make_event();
  step((std::string("to the device from ") + name).c_str());
  CU(launch(spin, stream, kBusy));
  CU(cuEventRecord(passed, stream));
  CU(cuMemcpyHtoDAsync(device, host, kBytes, stream));
  if (cuEventQuery(passed) != CUDA_ERROR_NOT_READY) wrong("a copy from %s memory waited", name);
  CU(cuStreamSynchronize(stream));
  std::memset(host, 0, kBytes);
  CU(launch(spin, stream, kBusy));
  CU(cuEventRecord(passed, stream));
  CU(cuMemcpyDtoHAsync(host, device, kBytes, stream));
  if (cuEventQuery(passed) != CUDA_ERROR_NOT_READY) wrong("a copy to %s memory waited", name);
  CU(cuStreamSynchronize(stream));
  for (size_t i = 0; i < kBytes; ++i) HOLDS(host[i] == pattern(i, seed));
  CU(cuEventDestroy(passed));
}

// A context that goes with copies under way takes them with it; memory of another one lives on.
void context_goes(unsigned char* host) {
  step("a context is destroyed while copies are under way");
  const CUcontext own = new_context();
  const CUfunction busy = kernel_of(load_kernels(), "spin");
  const CUdeviceptr there = device_memory(kBytes);
  const CUstream streams[] = {make_stream(), make_stream()};
  for (const CUstream one : streams) {
    CU(launch(busy, one, 300'000u));
    CU(cuMemcpyDtoHAsync(host, there, 1u << 20, one));
    CU(cuMemcpyHtoDAsync(there, host + (1u << 20), kBytes - (1u << 20), one));
  }
  CU(cuCtxDestroy(own));
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  spin = kernel_of(load_kernels(), "spin");
  stream = make_stream();
  device = device_memory(kBytes);
  CU(launch(spin, stream, 1u));
  CU(cuCtxSynchronize());
  void *pinned = nullptr, *own = std::aligned_alloc(4096, kBytes);
  CU(cuMemHostRegister(own, kBytes, 0));
  both_ways("registered", static_cast<unsigned char*>(own), 1);
  CU(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  both_ways("pinned", static_cast<unsigned char*>(pinned), 2);
  context_goes(static_cast<unsigned char*>(pinned));
  context_goes(static_cast<unsigned char*>(own));
  step("memory goes after its copies");
  CUdeviceptr small = device_memory(1u << 20);
  CU(launch(spin, stream, 300'000u));
  CU(cuMemcpyDtoHAsync(pinned, small, 1u << 20, stream));
  CU(cuMemcpyHtoDAsync(device, own, kBytes, stream));
  CU(cuStreamSynchronize(stream));
  CU(cuMemFreeHost(pinned));
  CU(cuMemHostUnregister(own));
  std::free(own);
  both_ways(
      "registered",
      [] {
        void* again = std::aligned_alloc(4096, kBytes);
        CU(cuMemHostRegister(again, kBytes, 0));
        return static_cast<unsigned char*>(again);
      }(),
      4);
  right();
}
