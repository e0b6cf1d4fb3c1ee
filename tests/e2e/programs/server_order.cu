// One program, devices of two servers: whose order default streams have, and what waits for work
// between the two. The first argument names the part. No kernels: loading one waits for streams.
#include <time.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "expect.h"

namespace {

constexpr size_t kBytes = 4u << 20;

struct OnDevice {
  explicit OnDevice(int number) : device(number) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&memory, kBytes));
    set(0);
  }
  void set(int value) const {
    CHECK(cudaSetDevice(device));
    CHECK(cudaMemset(memory, value, kBytes));
    CHECK(cudaDeviceSynchronize());
  }
  // Through a stream that waits for no default stream.
  void expect(int value) const {
    CHECK(cudaSetDevice(device));
    std::vector<char> seen(kBytes);
    CHECK(cudaMemcpyAsync(seen.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (const char byte : seen) EXPECT(byte == static_cast<char>(value));
  }
  int device;
  cudaStream_t stream{};
  char* memory = nullptr;
};

void pause(void*) {
  const timespec time{0, 100'000'000};
  nanosleep(&time, nullptr);
}

struct Late {
  char* to;
  int value;
};
void set_late(void* late) {
  pause(nullptr);
  const auto* const what = static_cast<const Late*>(late);
  std::memset(what->to, what->value, kBytes);
}

// The first device is current, the memory is the second one's.
void in_default_stream(const OnDevice& first, const OnDevice& second, cudaStream_t stream) {
  char* host = nullptr;
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaHostAlloc(&host, kBytes, cudaHostAllocPortable));

  // Behind a function in the stream of the first.
  Late late{host, 1};
  std::memset(host, 0, kBytes);
  CHECK(cudaLaunchHostFunc(stream, set_late, &late));
  CHECK(cudaMemcpyAsync(second.memory, host, kBytes, cudaMemcpyHostToDevice, stream));
  CHECK(cudaStreamSynchronize(stream));
  second.expect(1);
  if (stream == cudaStreamLegacy) {
    CHECK(cudaSetDevice(first.device));
    late.value = 2;
    CHECK(cudaLaunchHostFunc(nullptr, set_late, &late));
    CHECK(cudaMemcpy(second.memory, host, kBytes, cudaMemcpyHostToDevice));
    second.expect(2);
  }

  // Over when the stream of the first is, whatever is in that of the second.
  second.set(3);
  CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaMemcpyAsync(host, second.memory, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < kBytes; ++i) EXPECT(host[i] == 3);
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaMemsetAsync(second.memory, 4, kBytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  second.expect(4);

  // Copies between the two, in both directions.
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
  CHECK(cudaMemsetAsync(first.memory, 5, kBytes, stream));
  CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, kBytes,
                            stream));
  CHECK(cudaMemsetAsync(first.memory, 6, kBytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  second.expect(5);
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaLaunchHostFunc(stream, pause, nullptr));
  CHECK(cudaMemsetAsync(first.memory, 7, kBytes, stream));
  CHECK(cudaMemcpyAsync(first.memory, second.memory, kBytes, cudaMemcpyDefault, stream));
  CHECK(cudaStreamSynchronize(stream));
  first.expect(5);
  CHECK(cudaFreeHost(host));
}

std::atomic<bool> over{false};
void end_late(void*) {
  pause(nullptr);
  over = true;
}

// A copy between two devices while a third one is current is behind what is in its stream.
void in_a_third_stream(const OnDevice& first, const OnDevice& second, int third) {
  CHECK(cudaSetDevice(third));
  CHECK(cudaLaunchHostFunc(nullptr, end_late, nullptr));
  CHECK(cudaMemcpyPeer(second.memory, second.device, first.memory, first.device, kBytes));
  EXPECT(over.load());
}

// Memory is freed when the copies are done that use it.
void freed(OnDevice& first, OnDevice& second) {
  first.set(1);
  CHECK(cudaLaunchHostFunc(second.stream, pause, nullptr));
  CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, kBytes,
                            second.stream));
  CHECK(cudaFree(first.memory));
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaMalloc(&first.memory, kBytes));  // at the same address, perhaps
  first.set(2);
  CHECK(cudaStreamSynchronize(second.stream));
  second.expect(1);

  CHECK(cudaLaunchHostFunc(first.stream, pause, nullptr));
  CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, kBytes,
                            first.stream));
  CHECK(cudaFree(second.memory));
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaMalloc(&second.memory, kBytes));
  second.set(3);
  CHECK(cudaStreamSynchronize(first.stream));
  second.expect(3);
}

// A device is reset when the copies are done that use it; copies go on with what is made then.
void reset(OnDevice& first, OnDevice& second) {
  first.set(1);
  CHECK(cudaLaunchHostFunc(first.stream, pause, nullptr));
  for (int i = 0; i < 5; ++i) {
    CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, kBytes,
                              first.stream));
  }
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaDeviceReset());
  OnDevice again(second.device);
  again.set(2);
  CHECK(cudaStreamSynchronize(first.stream));
  again.expect(2);
  for (int round = 3; round < 6; ++round) {
    first.set(round);
    CHECK(cudaMemcpyPeerAsync(again.memory, again.device, first.memory, first.device, kBytes,
                              first.stream));
    CHECK(cudaStreamSynchronize(first.stream));
    again.expect(round);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  OnDevice first(0), second(1);
  if (part == "default") {
    for (cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
      in_default_stream(first, second, stream);
      in_default_stream(second, first, stream);
    }
  } else if (part == "third") {
    OnDevice other(2);
    in_a_third_stream(first, other, 1);
    over = false;
    in_a_third_stream(other, first, 1);
  } else if (part == "freed") {
    freed(first, second);
  } else if (part == "reset") {
    reset(first, second);
  } else {
    std::fprintf(stderr, "unknown part: %s\n", part.c_str());
    return 2;
  }
  std::printf("server_order: right\n");
  return 0;
}
