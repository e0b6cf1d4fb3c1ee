// calls_beside_frames MEBIBYTES: a thread copies so much ordinary memory to the device and back,
// while this one asks for the state of another stream, again and again. Prints how often it could
// during the first copy, and checks the bytes.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>
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
  CUstream idle;
  CHECK(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, words * sizeof(uint32_t)));
  std::vector<uint32_t> source(words), back(words);
  for (size_t i = 0; i < words; ++i) source[i] = static_cast<uint32_t>(i * 2654435761u);

  std::atomic<bool> copying{true};
  std::atomic<int> turns{0};
  int turns_to_device = 0;
  const auto copy_both_ways = [&] {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemcpyHtoD(memory, source.data(), words * sizeof(uint32_t)));
    CHECK(cuStreamSynchronize(nullptr));  // the bytes have crossed the network
    turns_to_device = turns;
    CHECK(cuMemcpyDtoH(back.data(), memory, words * sizeof(uint32_t)));
    return 0;
  };
  std::thread copies([&] {
    copy_both_ways();
    copying = false;
  });
  while (copying) {
    CHECK(cuStreamQuery(idle));
    ++turns;
  }
  copies.join();
  for (size_t i = 0; i < words; ++i) {
    if (back[i] == source[i]) continue;
    std::fprintf(stderr, "word %zu is wrong\n", i);
    return 1;
  }
  std::printf("%d\n", turns_to_device);
  return 0;
}
