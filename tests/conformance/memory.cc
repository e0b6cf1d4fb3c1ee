// Device memory: sizes, limits, bad pointers, ranges.
#include "tests/conformance/conformance.h"

int main() {
  make_context();
  CUdeviceptr pointer = 0, base = 0;
  size_t free_before = 0, free_now = 0, total = 0, bytes = 0, pitch = 0;
  SHOW(cuMemGetInfo(&free_before, &total));
  VALUE(free_before <= total);
  SHOW(cuMemAlloc(&pointer, 0));
  SHOW(cuMemAlloc(nullptr, 16));
  SHOW(cuMemAlloc(&pointer, size_t{1} << 50));
  SHOW(cuMemAlloc(&pointer, total + (1 << 20)));
  SHOW(cuMemAlloc(&pointer, 64 << 20));
  VALUE(pointer != 0);
  VALUE(pointer % 256);
  SHOW(cuMemGetInfo(&free_now, &total));
  VALUE(free_before - free_now >= (64u << 20));
  SHOW(cuMemGetAddressRange(&base, &bytes, pointer + 1000));
  VALUE(base == pointer);
  VALUE(bytes);
  SHOW(cuMemGetAddressRange(nullptr, nullptr, pointer));
  SHOW(cuMemGetAddressRange(&base, &bytes, 16));
  SHOW(cuMemFree(pointer + 256));
  SHOW(cuMemFree(pointer));
  SHOW(cuMemFree(pointer));
  SHOW(cuMemFree(0));
  SHOW(cuMemFree(12345));
  SHOW(cuMemGetAddressRange(&base, &bytes, pointer));

  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, 4));
  VALUE(pitch >= 100);
  VALUE(pitch % 32);
  SHOW(cuMemFree(pointer));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 100, 10, 3));
  SHOW(cuMemAllocPitch(&pointer, &pitch, 0, 10, 4));
  SHOW(cuMemAllocPitch(&pointer, nullptr, 100, 10, 4));

  // A copy past the end, from nowhere, of nothing.
  char host[256] = {};
  NEED(cuMemAlloc(&pointer, 128));
  SHOW(cuMemcpyHtoD(pointer, host, 128));
  SHOW(cuMemcpyHtoD(pointer, host, 0));
  SHOW(cuMemcpyHtoD(0, host, 0));
  SHOW(cuMemcpyHtoD(0, host, 16));
  SHOW(cuMemcpyHtoD(pointer, nullptr, 16));
  SHOW(cuMemcpyDtoH(nullptr, pointer, 16));
  SHOW(cuMemcpyDtoH(host, 0, 16));
  SHOW(cuMemcpyDtoH(host, 64, 16));
  SHOW(cuMemFree(pointer));
  SHOW(cuCtxSynchronize());

  // Many allocations of odd sizes do not overlap.
  std::vector<CUdeviceptr> many;
  for (int i = 0; i < 200; ++i) {
    NEED(cuMemAlloc(&pointer, 1 + i * 37));
    NEED(cuMemsetD8(pointer, static_cast<unsigned char>(i), 1 + i * 37));
    many.push_back(pointer);
  }
  long wrong = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<unsigned char> back(1 + i * 37);
    NEED(cuMemcpyDtoH(back.data(), many[i], back.size()));
    for (unsigned char byte : back) wrong += byte != static_cast<unsigned char>(i);
    NEED(cuMemFree(many[i]));
  }
  VALUE(wrong);
  SHOW(cuMemGetInfo(nullptr, nullptr));
  return 0;
}
