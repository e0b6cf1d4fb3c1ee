// Memset in all widths, linear and 2D, aligned and not.
#include "tests/conformance/conformance.h"

int main() {
  make_context();
  const size_t bytes = 4096;
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, bytes));
  std::vector<unsigned char> out(bytes);
  auto print = [&](const char* what) {
    NEED(cuMemcpyDtoH(out.data(), p, bytes));
    std::printf("  %s %08x\n", what, checksum(out));
  };
  SHOW(cuMemsetD8(p, 0x5a, bytes));
  print("d8");
  SHOW(cuMemsetD16(p + 2, 0x1234, 100));
  print("d16");
  SHOW(cuMemsetD32(p + 1024, 0xdeadbeef, 64));
  print("d32");
  SHOW(cuMemsetD8(p + 13, 1, 5));
  print("odd");
  SHOW(cuMemsetD2D8(p, 128, 3, 50, 20));
  print("2d8");
  SHOW(cuMemsetD2D16(p, 256, 0x0102, 33, 10));
  print("2d16");
  SHOW(cuMemsetD2D32(p, 512, 0x01020304, 100, 8));
  print("2d32");
  SHOW(cuMemsetD8Async(p, 9, 100, nullptr));
  SHOW(cuMemsetD16Async(p + 100, 9, 100, nullptr));
  SHOW(cuMemsetD32Async(p + 400, 9, 100, nullptr));
  SHOW(cuMemsetD2D8Async(p + 1000, 100, 4, 10, 10, nullptr));
  SHOW(cuCtxSynchronize());
  print("async");
  SHOW(cuMemsetD8(p, 1, 0));
  SHOW(cuMemsetD16(p + 1, 1, 4));
  SHOW(cuMemsetD32(p + 2, 1, 4));
  SHOW(cuMemsetD8(0, 1, 4));
  SHOW(cuMemsetD8(p, 1, bytes + (1 << 30)));
  SHOW(cuMemsetD2D8(p, 10, 1, 20, 4));
  SHOW(cuMemFree(p));
  return 0;
}
