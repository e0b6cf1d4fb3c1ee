// Asynchronous copies whose rows are a little longer than half of a piece: a piece has one row, so
// a copy takes more places in a driver's queue than its bytes alone say. Many of them behind a
// kernel do not fill the queue.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kRow = (2u << 20) + 4096, kRows = 31, kBytes = kRow * kRows;
constexpr int kCopies = 20;
constexpr unsigned kBusy = 300'000;  // microseconds

CUDA_MEMCPY2D copy_of(CUdeviceptr device, void* host, bool to_device) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcHost = copy.dstHost = host;
  copy.srcDevice = copy.dstDevice = device;
  copy.srcPitch = copy.dstPitch = kRow;
  copy.WidthInBytes = kRow - 64;
  copy.Height = kRows;
  return copy;
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUfunction spin = kernel_of(load_kernels(), "spin");
  const CUstream stream = make_stream(), other = make_stream();
  std::vector<unsigned char> host(kBytes, 1);
  CU(cuMemHostRegister(host.data(), kBytes, 0));
  const CUdeviceptr device = device_memory(kBytes);
  for (const bool to_device : {true, false}) {
    step(to_device ? "to the device" : "to the host");
    CU(cuMemsetD8(device, 2, kBytes));
    const CUDA_MEMCPY2D copy = copy_of(device, host.data(), to_device);
    CU(launch(spin, stream, kBusy));
    for (int i = 0; i < kCopies; ++i) CU(cuMemcpy2DAsync(&copy, stream));
    // Other streams go on meanwhile.
    CU(cuMemsetD8Async(device_memory(4096), 3, 4096, other));
    CU(cuStreamSynchronize(other));
    CU(cuStreamSynchronize(stream));
    unsigned char last = 0;
    CU(cuMemcpyDtoH(&last, device + kBytes - kRow, 1));
    HOLDS(last == (to_device ? 1 : 2));
    HOLDS(host[kBytes - kRow] == last);
  }
  right();
}
