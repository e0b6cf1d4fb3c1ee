// cuDevicePrimaryCtxReset gives everything up that the primary context holds, memory that was not
// freed included; retained again it works as before, as often as one likes.
#include "tests/orderings/check.h"

int main() {
  begin();
  for (int round = 1; round <= 3; ++round) {
    use_primary();
    const CUfunction store = kernel_of(load_kernels(), "store");
    int* host = nullptr;
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CUdeviceptr mapped;
    CU(cuMemHostGetDevicePointer(&mapped, host, 0));
    device_memory(1 << 20);
    step("a kernel that writes to mapped memory");
    CU(launch(store, nullptr, mapped, round));
    CU(cuCtxSynchronize());
    HOLDS(*host == round);
    step("a reset");
    CU(cuDevicePrimaryCtxReset(0));
    unsigned flags = 0;
    int active = 1;
    CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
    HOLDS(active == 0);
  }
  right();
}
