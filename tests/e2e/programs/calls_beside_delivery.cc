// calls_beside_delivery calls|knows MEBIBYTES: copies so much from the device to pinned memory,
// asynchronously. calls: allocates memory and puts work into another stream, again and again, until
// the last byte is there, and prints how often. knows: in each way in which a program may know that
// the copy is over, its bytes must be there.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "driver_check.h"

namespace {

constexpr size_t kSmall = 250;  // words

// A copy's two ends, and the stream in which it is made.
struct Place {
  size_t words = 0;
  CUdeviceptr device = 0, small = 0;
  uint32_t* host = nullptr;
  CUstream stream = nullptr;
  uint32_t round = 0;

  size_t bytes() const { return words * sizeof(uint32_t); }
  uint32_t word(size_t i) const { return static_cast<uint32_t>(i * 2654435761u) + round; }

  int make(size_t its_words) {
    words = its_words;
    CHECK(cuMemAlloc(&device, bytes()));
    CHECK(cuMemAlloc(&small, kSmall * sizeof(uint32_t)));
    void* pinned = nullptr;
    CHECK(cuMemAllocHost(&pinned, bytes()));
    host = static_cast<uint32_t*>(pinned);
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    return 0;
  }
  // Fresh words on the device, which the copy brings to the host.
  int copy() {
    ++round;
    std::vector<uint32_t> fresh(words);
    for (size_t i = 0; i < words; ++i) fresh[i] = word(i);
    CHECK(cuMemcpyHtoD(device, fresh.data(), bytes()));
    std::fill(fresh.begin(), fresh.begin() + kSmall, ~round);
    CHECK(cuMemcpyHtoD(small, fresh.data(), kSmall * sizeof(uint32_t)));
    std::fill(host, host + words, 0);
    return copy_again();
  }
  int copy_again() {
    CHECK(cuMemcpyDtoHAsync(host, device, bytes(), stream));
    return 0;
  }
  // Other words, behind it and over its last ones.
  int copy_small() {
    CHECK(cuMemcpyDtoHAsync(host + words - kSmall, small, kSmall * sizeof(uint32_t), stream));
    return 0;
  }
  bool is_there(bool with_small = false) const {
    const size_t plain = with_small ? words - kSmall : words;
    for (size_t i = 0; i < words; ++i) {
      if (host[i] != (i < plain ? word(i) : ~round)) return false;
    }
    return true;
  }
};

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                \
    }                                                                          \
  } while (0)
#define DO(call)        \
  do {                  \
    if (call) return 1; \
  } while (0)

int count_calls(Place& place) {
  CUstream working;
  CHECK(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  DO(place.copy());
  const uint32_t& last = place.host[place.words - 1];
  int turns = 0;
  for (; __atomic_load_n(&last, __ATOMIC_ACQUIRE) != place.word(place.words - 1); ++turns) {
    CUdeviceptr fresh;
    CHECK(cuMemAlloc(&fresh, 4096));
    CHECK(cuMemsetD32Async(fresh, 1, 1024, working));
  }
  CHECK(cuStreamSynchronize(place.stream));
  EXPECT(place.is_there());
  std::printf("%d\n", turns);
  return 0;
}

int by_stream(Place& place) {
  DO(place.copy());
  CHECK(cuStreamSynchronize(place.stream));
  EXPECT(place.is_there());
  DO(place.copy());
  CUresult state = CUDA_ERROR_NOT_READY;
  while (state == CUDA_ERROR_NOT_READY) state = cuStreamQuery(place.stream);
  CHECK(state);
  EXPECT(place.is_there());
  DO(place.copy());
  CHECK(cuCtxSynchronize());
  EXPECT(place.is_there());
  return 0;
}

int by_event(Place& place) {
  CUevent behind;
  CHECK(cuEventCreate(&behind, CU_EVENT_DEFAULT));
  DO(place.copy());
  CHECK(cuEventRecord(behind, place.stream));
  CHECK(cuEventSynchronize(behind));
  EXPECT(place.is_there());
  DO(place.copy());
  CHECK(cuEventRecord(behind, place.stream));
  CUresult state = CUDA_ERROR_NOT_READY;
  while (state == CUDA_ERROR_NOT_READY) state = cuEventQuery(behind);
  CHECK(state);
  EXPECT(place.is_there());
  CUstream other;
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  DO(place.copy());
  CHECK(cuEventRecord(behind, place.stream));
  CHECK(cuStreamWaitEvent(other, behind, 0));
  CHECK(cuStreamSynchronize(other));
  EXPECT(place.is_there());
  CHECK(cuStreamDestroy(other));
  CHECK(cuEventDestroy(behind));
  return 0;
}

struct Look {
  const Place* place;
  std::atomic<int> seen{-1};
};

int by_host_function(Place& place) {
  Look look{&place};
  DO(place.copy());
  CHECK(cuLaunchHostFunc(
      place.stream,
      [](void* data) {
        auto& look = *static_cast<Look*>(data);
        look.seen = look.place->is_there() ? 1 : 0;
      },
      &look));
  while (look.seen < 0) std::this_thread::yield();
  EXPECT(look.seen == 1);
  CHECK(cuStreamSynchronize(place.stream));
  return 0;
}

int by_copy_back(Place& place) {
  CUdeviceptr back;
  CHECK(cuMemAlloc(&back, place.bytes()));
  std::vector<uint32_t> words(place.words);
  DO(place.copy());
  CHECK(cuMemcpyHtoDAsync(back, place.host, place.bytes(), place.stream));
  CHECK(cuStreamSynchronize(place.stream));
  CHECK(cuMemcpyDtoH(words.data(), back, place.bytes()));
  EXPECT(place.is_there() && std::equal(words.begin(), words.end(), place.host));
  CHECK(cuMemFree(back));
  return 0;
}

int over_each_other(Place& place) {
  DO(place.copy());
  DO(place.copy_small());
  CHECK(cuStreamSynchronize(place.stream));
  EXPECT(place.is_there(true));
  DO(place.copy());
  DO(place.copy_small());
  DO(place.copy_again());
  CHECK(cuStreamSynchronize(place.stream));
  EXPECT(place.is_there());
  // A copy that waits, behind what is in the other stream.
  DO(place.copy());
  CHECK(cuMemcpyDtoH(place.host + place.words - kSmall, place.small, kSmall * sizeof(uint32_t)));
  EXPECT(place.is_there(true));
  return 0;
}

int know(Place& place) {
  DO(by_stream(place));
  DO(by_event(place));
  DO(by_host_function(place));
  DO(by_copy_back(place));
  DO(over_each_other(place));
  return 0;
}

int know_in_threads(CUcontext context, size_t words) {
  constexpr int kThreads = 4;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Place place;
      if (cuCtxSetCurrent(context) != CUDA_SUCCESS || place.make(words + i * kSmall) || know(place))
        ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t words = std::strtoul(argv[2], nullptr, 10) << 18;
  CUcontext context;
  CUdevice device;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  Place place;
  DO(place.make(words));
  if (argv[1] == std::string("calls")) return count_calls(place);
  DO(know(place));
  return know_in_threads(context, words);
}
