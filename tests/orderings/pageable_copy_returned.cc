// A synchronous copy from pageable memory synchronises its stream before it begins. So when the
// call returns, what was before it has ended, whatever tells. Of up to 64 KiB less is promised.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 8u << 20, kRow = 64u << 10;
constexpr double kBusy = 0.1;
CUfunction spin, store;
CUdeviceptr target;
std::vector<char> source(kBytes, 7);

void copy_line() { CU(cuMemcpyHtoD(target, source.data(), kBytes)); }

void copy_rows() {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = source.data();
  rows.srcPitch = kRow;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = target;
  rows.dstPitch = kRow;
  rows.WidthInBytes = kRow - 16;
  rows.Height = kBytes / kRow;
  CU(cuMemcpy2D(&rows));
}

using Copy = void (*)();
constexpr Copy kCopies[] = {copy_line, copy_rows};

// While no memory is shared that could tell.
void events() {
  CUevent first, last;
  CU(cuEventCreate(&first, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&last, CU_EVENT_DEFAULT));
  for (const Copy copy : kCopies) {
    CU(cuEventRecord(first, nullptr));
    CU(launch(spin, nullptr, microseconds(kBusy)));
    CU(cuEventRecord(last, nullptr));
    copy();
    CU(cuEventQuery(last));
    float milliseconds = 0;
    CU(cuEventElapsedTime(&milliseconds, first, last));
    HOLDS(milliseconds > 500 * kBusy);
  }
}

void memory_of_both() {
  int* host = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, host, 0));
  for (const Copy copy : kCopies) {
    *host = 0;
    CU(launch(spin, nullptr, microseconds(kBusy)));
    CU(launch(store, nullptr, device, 1));
    copy();
    HOLDS(*static_cast<volatile int*>(host) == 1);
  }
  CU(cuCtxSynchronize());
  CU(cuMemFreeHost(host));
}

void host_function() {
  static volatile int seen;
  for (const Copy copy : kCopies) {
    seen = 0;
    CU(cuLaunchHostFunc(
        nullptr,
        [](void*) {
          usleep(microseconds(kBusy));
          seen = 1;
        },
        nullptr));
    copy();
    HOLDS(seen == 1);
  }
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  target = device_memory(kBytes);
  // Kernels are loaded at their first launch.
  CU(launch(spin, nullptr, 1u));
  CU(launch(store, nullptr, target, 0));
  CU(cuCtxSynchronize());
  step("events before the copy");
  events();
  step("a host function before the copy");
  host_function();
  step("memory that a kernel before the copy writes");
  memory_of_both();
  right();
}
