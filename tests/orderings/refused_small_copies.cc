// A few bytes that are copied to the host from where no memory is: the error is that of this very
// call, each time, and no call of another thread gets it.
// again: FARGPU_ZERO_COPY=0
// again: FARGPU_SPIN=2ms
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr int kRounds = 3000;
constexpr CUdeviceptr kNowhere = 0x1000;

// Whatever an earlier call left behind comes out here.
void look(CUcontext context, const std::atomic<bool>& stop) {
  CU(cuCtxSetCurrent(context));
  while (!stop.load()) {
    unsigned flags = 0;
    CU(cuCtxGetFlags(&flags));
  }
}

void copy(CUstream stream) {
  const CUdeviceptr device = device_memory(sizeof(int));
  CU(cuMemsetD32(device, 7, 1));
  CU(cuCtxSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    int value = 0;
    CU(cuMemcpyDtoHAsync(&value, device, sizeof value, stream));
    HOLDS(value == 7);
    HOLDS(cuMemcpyDtoHAsync(&value, kNowhere, sizeof value, stream) == CUDA_ERROR_INVALID_VALUE);
    HOLDS(value == 7);
  }
  CU(cuMemFree(device));
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUstream stream = make_stream();
  step("alone");
  copy(stream);
  step("beside calls of another thread");
  std::atomic<bool> stop{false};
  std::thread other([&] { look(context, stop); });
  copy(stream);
  stop = true;
  other.join();
  right();
}
