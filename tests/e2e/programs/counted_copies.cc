// counted_copies MEMORY COUNT: COUNT synchronous copies of 4 KiB to the device, from pageable,
// pinned or registered memory, with a fill before each. MEMORY `reads`: copies of them to pageable
// memory, each with a wait for its stream. The test counts what that costs in calls.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void must(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("error %d\n", result);
  std::exit(1);
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) return 2;
  constexpr size_t kBytes = 4096;
  CUcontext context;
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  CUdeviceptr memory;
  must(cuMemAlloc(&memory, kBytes));
  void* host = nullptr;
  if (std::strcmp(values[1], "pinned") == 0) {
    must(cuMemHostAlloc(&host, kBytes, 0));
  } else {
    host = std::aligned_alloc(kBytes, kBytes);
    std::memset(host, 0, kBytes);
    if (std::strcmp(values[1], "registered") == 0) must(cuMemHostRegister(host, kBytes, 0));
  }
  const bool reads = std::strcmp(values[1], "reads") == 0;
  for (int i = std::atoi(values[2]); i > 0; --i) {
    must(cuMemsetD8Async(memory, 1, kBytes, nullptr));
    if (reads) {
      must(cuMemcpyDtoHAsync(host, memory, kBytes, nullptr));
      must(cuStreamSynchronize(nullptr));
    } else {
      must(cuMemcpyHtoD(memory, host, kBytes));
    }
  }
  must(cuCtxSynchronize());
  return 0;
}
