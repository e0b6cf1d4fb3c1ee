// A stream may be waited for, and copied in, while a context of another device is current: the call
// is about the stream's own work, and not about what the other device does meanwhile.
#include <atomic>
#include <cstring>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kSmall = 4096, kLarge = 3 << 20;
constexpr double kHeld = 0.3;  // seconds

std::atomic<bool> passed{false};

void CUDA_CB sleep_a_while(void*) {
  usleep(microseconds(kHeld));
  passed = true;
}

void hold(CUstream stream) {
  passed = false;
  CU(cuLaunchHostFunc(stream, sleep_a_while, nullptr));
}

bool is_all(const void* bytes, size_t count, unsigned char value) {
  const auto* const from = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) {
    if (from[i] != value) return false;
  }
  return true;
}

struct Place {
  CUcontext context;
  CUstream stream;
  CUdeviceptr memory;
};

Place place_on(int ordinal) {
  const CUcontext context = use_primary(ordinal);
  return {context, make_stream(), device_memory(kLarge)};
}

// `other` is current; the stream and the memory are of `here`.
void copies(const Place& here, const Place& other, void* host, size_t bytes) {
  CU(cuCtxSetCurrent(here.context));
  CU(cuMemsetD8(here.memory, 1, bytes));
  CU(cuCtxSynchronize());
  hold(here.stream);
  CU(cuMemsetD8Async(here.memory, 2, bytes, here.stream));
  CU(cuCtxSetCurrent(other.context));
  std::memset(host, 0, bytes);
  CU(cuMemcpyDtoHAsync(host, here.memory, bytes, here.stream));
  CU(cuStreamSynchronize(here.stream));
  HOLDS(passed);
  HOLDS(is_all(host, bytes, 2));

  CU(cuCtxSetCurrent(here.context));
  hold(here.stream);
  CU(cuMemsetD8Async(here.memory, 3, bytes, here.stream));
  CU(cuCtxSetCurrent(other.context));
  std::memset(host, 4, bytes);
  CU(cuMemcpyHtoDAsync(here.memory, host, bytes, here.stream));
  CU(cuStreamSynchronize(here.stream));
  HOLDS(passed);
  std::vector<unsigned char> seen(bytes);
  CU(cuMemcpyDtoH(seen.data(), here.memory, bytes));
  HOLDS(is_all(seen.data(), bytes, 4));
}

}  // namespace

int main() {
  begin();
  if (device_count() < 2) {
    note("needs two GPUs");
    right();
  }
  const Place first = place_on(0), second = place_on(1);

  step("a wait for a stream of the other device");
  CU(cuCtxSetCurrent(second.context));
  hold(second.stream);
  CU(cuCtxSetCurrent(first.context));
  CU(cuStreamSynchronize(second.stream));
  HOLDS(passed);

  step("a wait for a stream of the other device, beside work that is held");
  for (int round = 0; round < 3; ++round) {
    CU(cuCtxSetCurrent(first.context));
    hold(first.stream);
    CU(cuCtxSetCurrent(second.context));
    CU(cuMemsetD8Async(second.memory, 0, kLarge, second.stream));
    CU(cuCtxSetCurrent(first.context));
    CU(cuStreamSynchronize(second.stream));
    HOLDS(!passed);
    CU(cuStreamSynchronize(first.stream));
    HOLDS(passed);
  }

  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, kLarge, CU_MEMHOSTALLOC_PORTABLE));
  std::vector<unsigned char> pageable(kLarge);
  for (const size_t bytes : {kSmall, kLarge}) {
    step("copies of pageable memory in a stream of the other device");
    copies(second, first, pageable.data(), bytes);
    step("copies of pinned memory in a stream of the other device");
    copies(second, first, pinned, bytes);
  }
  right();
}
