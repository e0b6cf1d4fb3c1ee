// calls_beside_copy MEBIBYTES: copies so much from pinned memory to the device, asynchronously, and
// fills other memory in another stream and waits for that, again and again, until the copy is over.
// Prints how often, and checks the bytes. A wait for a value makes it a copy whose bytes are taken
// when its stream has come to it.
#include <cuda.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "driver_check.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const size_t words = std::strtoul(argv[1], nullptr, 10) << 18;
  CUcontext context;
  CUdevice device;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUstream copying, working;
  CHECK(cuStreamCreate(&copying, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  CUdeviceptr copied, filled, flag;
  CHECK(cuMemAlloc(&copied, words * sizeof(uint32_t)));
  CHECK(cuMemAlloc(&filled, 4096));
  CHECK(cuMemAlloc(&flag, sizeof(uint32_t)));
  void* pinned = nullptr;
  CHECK(cuMemAllocHost(&pinned, words * sizeof(uint32_t)));
  auto* const source = static_cast<uint32_t*>(pinned);
  for (size_t i = 0; i < words; ++i) source[i] = static_cast<uint32_t>(i * 2654435761u);
  CHECK(cuMemsetD32(flag, 1, 1));
  CHECK(cuStreamWaitValue32(copying, flag, 1, CU_STREAM_WAIT_VALUE_EQ));

  CHECK(cuMemcpyHtoDAsync(copied, source, words * sizeof(uint32_t), copying));
  int turns = 0;
  for (;; ++turns) {
    const CUresult state = cuStreamQuery(copying);
    if (state == CUDA_SUCCESS) break;
    if (state != CUDA_ERROR_NOT_READY) CHECK(state);
    CHECK(cuMemsetD32Async(filled, static_cast<unsigned>(turns), 1024, working));
    CHECK(cuStreamSynchronize(working));
  }

  std::vector<uint32_t> back(words);
  CHECK(cuMemcpyDtoH(back.data(), copied, words * sizeof(uint32_t)));
  for (size_t i = 0; i < words; ++i) {
    if (back[i] == source[i]) continue;
    std::fprintf(stderr, "word %zu is wrong\n", i);
    return 1;
  }
  CHECK(cuMemFreeHost(source));
  std::printf("%d\n", turns);
  return 0;
}
