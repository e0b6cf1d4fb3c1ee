// What only memory shared with the worker can do, and what staging in it must not do. Driver API;
// nothing of fargpu.
//   shared_memory async    copies from and to pinned memory return while their stream is held up,
//                          and see what is in memory when it goes on
//   shared_memory held     a stream that does not move keeps no other stream from copying pageable
//                          memory
//   shared_memory large    100 MB of pageable memory, both ways, from several threads, whole and in
//                          boxes
#include <cuda.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    const CUresult check_result_ = (call);                                                     \
    if (check_result_ != CUDA_SUCCESS) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, check_result_); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (0)
#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

namespace {

std::atomic<bool> released{false};

void CUDA_CB wait_for_release(void*) {
  while (!released.load()) std::this_thread::yield();
}

CUstream make_stream() {
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void async() {
  constexpr size_t kBytes = 3 << 20;
  void *in_memory, *out_memory;
  CHECK(cuMemHostAlloc(&in_memory, kBytes, 0));
  CHECK(cuMemHostAlloc(&out_memory, 4096, 0));  // from an arena
  auto *in = static_cast<unsigned char*>(in_memory), *out = static_cast<unsigned char*>(out_memory);
  CUdeviceptr device;
  CHECK(cuMemAlloc(&device, kBytes));
  CHECK(cuMemsetD8(device, 5, kBytes));
  CHECK(cuCtxSynchronize());  // the stream below does not wait for the default one
  std::memset(in, 6, kBytes);
  std::memset(out, 0, 4096);
  CUstream stream = make_stream();
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

  CHECK(cuLaunchHostFunc(stream, wait_for_release, nullptr));
  CHECK(cuMemcpyDtoHAsync(out, device + 100, 1000, stream));
  CHECK(cuMemcpyHtoDAsync(device, in, kBytes, stream));
  CHECK(cuMemcpyDtoHAsync(out + 2000, device + kBytes - 1000, 1000, stream));
  CHECK(cuEventRecord(event, stream));
  EXPECT(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  EXPECT(out[0] == 0 && out[2000] == 0);
  // The copy reads memory when the stream gets there, not before.
  std::memset(in, 7, kBytes);
  released = true;
  CHECK(cuEventSynchronize(event));
  for (size_t i = 0; i < 1000; ++i) EXPECT(out[i] == 5 && out[2000 + i] == 7 && out[1000 + i] == 0);
  CHECK(cuMemFreeHost(in));
  CHECK(cuMemFreeHost(out));
}

void held() {
  constexpr size_t kBytes = 48 << 20;  // more than all staging slots
  std::vector<unsigned char> first(kBytes, 1), second(kBytes, 2), back(kBytes);
  CUdeviceptr a, b;
  CHECK(cuMemAlloc(&a, kBytes));
  CHECK(cuMemAlloc(&b, kBytes));
  CUstream still = make_stream(), moving = make_stream();
  CHECK(cuLaunchHostFunc(still, wait_for_release, nullptr));
  CHECK(cuMemcpyHtoDAsync(a, first.data(), kBytes, still));
  std::memset(first.data(), 9, kBytes);  // has been taken
  CHECK(cuMemcpyHtoDAsync(b, second.data(), kBytes, moving));
  CHECK(cuMemcpyDtoHAsync(back.data(), b, kBytes, moving));
  EXPECT(back == second);
  EXPECT(cuStreamQuery(still) == CUDA_ERROR_NOT_READY);
  released = true;
  CHECK(cuMemcpyDtoHAsync(back.data(), a, kBytes, still));
  for (const unsigned char byte : back) EXPECT(byte == 1);
}

// Different at every offset, and from one seed to the next.
std::vector<unsigned> pattern(size_t bytes, unsigned seed) {
  std::vector<unsigned> values(bytes / 4);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<unsigned>(i * 2654435761u) ^ (seed * 40503u);
  return values;
}

void large(CUcontext context) {
  constexpr size_t kBytes = 100'000'000;
  const std::vector<unsigned> in = pattern(kBytes, 1);
  std::vector<unsigned> out(in.size());
  CUdeviceptr device, other;
  CHECK(cuMemAlloc(&device, kBytes));
  CHECK(cuMemAlloc(&other, kBytes));
  CHECK(cuMemcpyHtoD(device, in.data(), kBytes));
  CHECK(cuMemcpyDtoD(other, device, kBytes));
  CHECK(cuMemcpyDtoH(out.data(), other, kBytes));
  EXPECT(in == out);

  // A box with wide pitches on both sides, 30 MB of it.
  const size_t width = 30'000, height = 1000, host_pitch = 32'000, device_pitch = 40'000;
  CUDA_MEMCPY2D up{}, down{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST, up.srcHost = in.data(), up.srcPitch = host_pitch;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE, up.dstDevice = other, up.dstPitch = device_pitch;
  up.WidthInBytes = width, up.Height = height;
  CHECK(cuMemcpy2D(&up));
  std::fill(out.begin(), out.end(), 0);
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE, down.srcDevice = other, down.srcPitch = device_pitch;
  down.dstMemoryType = CU_MEMORYTYPE_HOST, down.dstHost = out.data(), down.dstPitch = host_pitch;
  down.WidthInBytes = width, down.Height = height;
  CHECK(cuMemcpy2D(&down));
  for (size_t y = 0; y < height; ++y) {
    const size_t row = y * host_pitch / 4;
    EXPECT(std::memcmp(&out[row], &in[row], width) == 0 && out[row + width / 4] == 0);
  }
  CHECK(cuMemFree(device));
  CHECK(cuMemFree(other));

  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([context, t] {
      CHECK(cuCtxSetCurrent(context));
      CUstream stream = make_stream();
      CUdeviceptr mine;
      const size_t bytes = (5 << 20) + 4096 * t + 4;
      CHECK(cuMemAlloc(&mine, bytes));
      std::vector<unsigned> back(bytes / 4);
      for (unsigned round = 0; round < 6; ++round) {
        std::vector<unsigned> source = pattern(bytes, 10 * t + round);
        const std::vector<unsigned> want = source;
        CHECK(cuMemcpyHtoDAsync(mine, source.data(), bytes, stream));
        std::fill(source.begin(), source.end(), 0);  // has been taken
        CHECK(cuMemcpyDtoHAsync(back.data(), mine, bytes, stream));
        EXPECT(back == want);
      }
      CHECK(cuMemFree(mine));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  if (what == "async") async();
  if (what == "held") held();
  if (what == "large") large(context);
  std::printf("%s: right\n", what.c_str());
  return 0;
}
