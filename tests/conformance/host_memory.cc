// Pinned host memory: allocated and registered, flags, device pointers, errors.
#include "tests/conformance/conformance.h"

int main() {
  make_context();
  void* host = nullptr;
  CUdeviceptr device = 0;
  unsigned flags = 99;
  SHOW(cuMemAllocHost(&host, 0));
  SHOW(cuMemAllocHost(nullptr, 16));
  SHOW(cuMemAllocHost(&host, 1 << 20));
  VALUE(host != nullptr);
  std::memset(host, 0x21, 1 << 20);
  NEED(cuMemAlloc(&device, 1 << 20));
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuMemcpyHtoDAsync(device, host, 1 << 20, stream));
  SHOW(cuStreamSynchronize(stream));
  std::memset(host, 0, 1 << 20);
  SHOW(cuMemcpyDtoHAsync(host, device, 1 << 20, stream));
  SHOW(cuStreamSynchronize(stream));
  std::printf("  back %08x\n", checksum(host, 1 << 20));
  SHOW(cuMemFreeHost(host));
  SHOW(cuMemFreeHost(host));
  SHOW(cuMemFreeHost(nullptr));

  SHOW(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
  SHOW(cuMemHostGetFlags(&flags, host));
  VALUE(flags & CU_MEMHOSTALLOC_PORTABLE);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  SHOW(cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(host) + 100));
  VALUE(base == reinterpret_cast<CUdeviceptr>(host));
  VALUE(bytes);
  SHOW(cuMemFreeHost(host));
  SHOW(cuMemHostAlloc(&host, 4096, 0xff00));

  alignas(4096) static char area[3 * 4096];
  SHOW(cuMemHostGetFlags(&flags, area));
  SHOW(cuMemHostRegister(area, sizeof(area), 0));
  SHOW(cuMemHostRegister(area, sizeof(area), 0));
  SHOW(cuMemHostGetFlags(&flags, area + 5));
  VALUE(flags);
  SHOW(cuMemcpyHtoDAsync(device, area, sizeof(area), stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemHostUnregister(area + 4096));
  SHOW(cuMemHostUnregister(area));
  SHOW(cuMemHostUnregister(area));
  SHOW(cuMemHostRegister(nullptr, 4096, 0));
  SHOW(cuMemHostRegister(area, 0, 0));
  SHOW(cuMemHostUnregister(nullptr));
  return 0;
}
