// One program, two devices, which may be of two servers. The first argument says what it does with
// them; each part checks its results.
#include <time.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"

namespace {

constexpr int kCount = 100000;
constexpr size_t kBytes = kCount * sizeof(int);

__device__ int variable;

__global__ void fill(int* to, int count, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = value + i;
}
__global__ void add(int* to, const int* from, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] += from[i];
}
__global__ void set_variable(int value) { variable = value; }

constexpr int blocks(int count) { return (count + 255) / 256; }

struct OnDevice {
  explicit OnDevice(int number) : device(number) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMalloc(&memory, kBytes));
  }
  int device;
  cudaStream_t stream{};
  cudaEvent_t event{};
  int* memory = nullptr;
};

void expect_filled(const int* memory, int value, int count = kCount) {
  std::vector<int> back(static_cast<size_t>(count));
  CHECK(cudaMemcpy(back.data(), memory, back.size() * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; ++i) EXPECT(back[static_cast<size_t>(i)] == value + i);
}

// What each server does by itself.
void work(OnDevice& on, int round) {
  CHECK(cudaSetDevice(on.device));
  const int value = 1000 * on.device + round;
  fill<<<blocks(kCount), 256, 0, on.stream>>>(on.memory, kCount, value);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(on.event, on.stream));
  set_variable<<<1, 1, 0, on.stream>>>(value);
  CHECK(cudaGetLastError());
  CHECK(cudaEventSynchronize(on.event));
  CHECK(cudaStreamSynchronize(on.stream));
  expect_filled(on.memory, value);
  int seen = 0;
  CHECK(cudaMemcpyFromSymbol(&seen, variable, sizeof seen));
  EXPECT(seen == value);
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, on.memory));
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == on.device);
}

void show_devices() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    CHECK(cudaGetDeviceProperties(&properties, device));
    char pci[32];
    CHECK(cudaDeviceGetPCIBusId(pci, sizeof pci, device));
    int found = -1;
    CHECK(cudaDeviceGetByPCIBusId(&found, pci));
    EXPECT(found == device);
    std::printf("%d ", device);
    for (const char byte : properties.uuid.bytes)
      std::printf("%02x", static_cast<unsigned char>(byte));
    std::printf(" %s %x\n", pci, properties.pciDomainID);
  }
}

void each_by_itself() {
  OnDevice first(0), second(1);
  int can = -1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can == 0);
  CHECK(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 1, 0));
  EXPECT(can == 0);
  CHECK(cudaSetDevice(0));
  EXPECT_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
  (void)cudaGetLastError();
  for (int round = 0; round < 3; ++round) {
    work(first, round);
    work(second, round);
  }
  // Work of both at once.
  for (OnDevice* on : {&first, &second}) {
    CHECK(cudaSetDevice(on->device));
    fill<<<blocks(kCount), 256, 0, on->stream>>>(on->memory, kCount, 7);
    CHECK(cudaGetLastError());
  }
  for (OnDevice* on : {&first, &second}) CHECK(cudaStreamSynchronize(on->stream));
  expect_filled(first.memory, 7);
  expect_filled(second.memory, 7);
  for (OnDevice* on : {&first, &second}) {
    CHECK(cudaSetDevice(on->device));
    CHECK(cudaFree(on->memory));
    CHECK(cudaDeviceReset());
  }
}

// Says what became of so many allocations on the second device while the first has some.
void collide(int held) {
  std::vector<int*> firsts;
  CHECK(cudaSetDevice(0));
  for (int i = 0; i < held; ++i) {
    CHECK(cudaMalloc(&firsts.emplace_back(), kBytes));
    fill<<<blocks(kCount), 256>>>(firsts.back(), kCount, i);
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaSetDevice(1));
  int* second = nullptr;
  const cudaError_t result = cudaMalloc(&second, kBytes);
  std::printf("%s\n", cudaGetErrorName(result));
  if (result == cudaSuccess) {
    for (const int* each : firsts) EXPECT(each != second);
    fill<<<blocks(kCount), 256>>>(second, kCount, 555);
    expect_filled(second, 555);
    CHECK(cudaFree(second));
  }
  (void)cudaGetLastError();
  for (int i = 0; i < held; ++i) expect_filled(firsts[static_cast<size_t>(i)], i);
}

void spin_ns(void* nanoseconds) {
  const timespec pause{0, *static_cast<long*>(nanoseconds)};
  nanosleep(&pause, nullptr);
}

// Copies of every form from one device to the other, and back.
void copies(OnDevice& from, OnDevice& to) {
  CHECK(cudaSetDevice(from.device));
  // In the default stream, behind the kernel.
  fill<<<blocks(kCount), 256>>>(from.memory, kCount, 1);
  CHECK(cudaMemcpyPeer(to.memory, to.device, from.memory, from.device, kBytes));
  expect_filled(to.memory, 1);
  fill<<<blocks(kCount), 256>>>(from.memory, kCount, 2);
  CHECK(cudaMemcpy(to.memory, from.memory, kBytes, cudaMemcpyDefault));
  expect_filled(to.memory, 2);
  fill<<<blocks(kCount), 256>>>(from.memory, kCount, 3);
  CHECK(cudaMemcpy(to.memory, from.memory, kBytes, cudaMemcpyDeviceToDevice));
  expect_filled(to.memory, 3);
  // A part, at odd addresses.
  char *const odd_to = reinterpret_cast<char*>(to.memory) + 3, *const odd_from =
                                                                   reinterpret_cast<char*>(
                                                                       from.memory) +
                                                                   5;
  CHECK(cudaMemcpy(odd_to, odd_from, 1001, cudaMemcpyDefault));
  std::vector<char> left(1001), right(1001);
  CHECK(cudaMemcpy(left.data(), odd_to, left.size(), cudaMemcpyDefault));
  CHECK(cudaMemcpy(right.data(), odd_from, right.size(), cudaMemcpyDefault));
  EXPECT(left == right);

  // In a stream: behind what is before it, before what is behind it, of both devices.
  static long pause = 20'000'000;
  for (int round = 0; round < 3; ++round) {
    for (OnDevice* const on : {&from, &to}) {
      CHECK(cudaSetDevice(on->device));
      CHECK(cudaLaunchHostFunc(on->stream, spin_ns, &pause));
      if (on == &from) {
        fill<<<blocks(kCount), 256, 0, from.stream>>>(from.memory, kCount, 10 + round);
      } else {
        CHECK(cudaStreamWaitEvent(to.stream, from.event, 0));
      }
      if (on == &from) CHECK(cudaEventRecord(from.event, from.stream));
    }
    CHECK(cudaMemcpyPeerAsync(to.memory, to.device, from.memory, from.device, kBytes, to.stream));
    fill<<<1, 1, 0, to.stream>>>(to.memory, 1, 4711);
    // The source may be written when the stream of the copy has come so far.
    CHECK(cudaEventRecord(to.event, to.stream));
    CHECK(cudaSetDevice(from.device));
    CHECK(cudaStreamWaitEvent(from.stream, to.event, 0));
    fill<<<blocks(kCount), 256, 0, from.stream>>>(from.memory, kCount, -5);
    CHECK(cudaStreamSynchronize(to.stream));
    std::vector<int> back(kCount);
    CHECK(cudaMemcpy(back.data(), to.memory, kBytes, cudaMemcpyDefault));
    EXPECT(back[0] == 4711);
    for (int i = 1; i < kCount; ++i) EXPECT(back[static_cast<size_t>(i)] == 10 + round + i);
    CHECK(cudaStreamSynchronize(from.stream));
    expect_filled(from.memory, -5);
  }
  // Boxes.
  constexpr size_t kWidth = 37 * sizeof(int), kPitch = 64 * sizeof(int), kRows = 50;
  CHECK(cudaSetDevice(from.device));
  fill<<<blocks(kCount), 256>>>(from.memory, kCount, 0);
  CHECK(cudaMemset(to.memory, 0, kBytes));
  CHECK(cudaMemcpy2D(to.memory, kWidth, from.memory, kPitch, kWidth, kRows, cudaMemcpyDefault));
  std::vector<int> rows(37 * kRows);
  CHECK(cudaMemcpy(rows.data(), to.memory, rows.size() * sizeof(int), cudaMemcpyDefault));
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT(rows[i] == static_cast<int>(i / 37 * 64 + i % 37));
}

// More than one piece, in one direction and back.
void large_copies(OnDevice& first, OnDevice& second) {
  constexpr int kMany = 10'000'019;
  constexpr size_t kLarge = kMany * sizeof(int);
  int *a = nullptr, *b = nullptr, *back = nullptr;
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaMalloc(&a, kLarge));
  CHECK(cudaMalloc(&back, kLarge));
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaMalloc(&b, kLarge));
  CHECK(cudaSetDevice(first.device));
  fill<<<blocks(kMany), 256, 0, first.stream>>>(a, kMany, 3);
  CHECK(cudaMemcpyAsync(b, a, kLarge, cudaMemcpyDefault, first.stream));
  CHECK(cudaMemcpyPeerAsync(back, first.device, b, second.device, kLarge, first.stream));
  add<<<blocks(kMany), 256, 0, first.stream>>>(back, a, kMany);
  CHECK(cudaStreamSynchronize(first.stream));
  std::vector<int> seen(kMany);
  CHECK(cudaMemcpy(seen.data(), back, kLarge, cudaMemcpyDefault));
  for (int i = 0; i < kMany; ++i) EXPECT(seen[static_cast<size_t>(i)] == 2 * (3 + i));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
  CHECK(cudaFree(back));
}

// Streams of both wait for each other's events, round after round, and the program does not.
void events(OnDevice& first, OnDevice& second) {
  constexpr int kRounds = 20;
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaMemset(first.memory, 0, kBytes));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaMemset(second.memory, 0, kBytes));
  int* ones = nullptr;
  CHECK(cudaMalloc(&ones, kBytes));
  fill<<<blocks(kCount), 256, 0, second.stream>>>(ones, kCount, 1);
  // The counter goes to and fro.
  for (int round = 0; round < kRounds; ++round) {
    CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, kBytes,
                              first.stream));
    CHECK(cudaEventRecord(first.event, first.stream));
    CHECK(cudaSetDevice(second.device));
    CHECK(cudaStreamWaitEvent(second.stream, first.event, 0));
    add<<<blocks(kCount), 256, 0, second.stream>>>(second.memory, ones, kCount);
    CHECK(cudaEventRecord(second.event, second.stream));
    CHECK(cudaSetDevice(first.device));
    CHECK(cudaStreamWaitEvent(first.stream, second.event, 0));
    CHECK(cudaMemcpyPeerAsync(first.memory, first.device, second.memory, second.device, kBytes,
                              first.stream));
  }
  CHECK(cudaStreamSynchronize(first.stream));
  std::vector<int> back(kCount);
  CHECK(cudaMemcpy(back.data(), first.memory, kBytes, cudaMemcpyDefault));
  for (int i = 0; i < kCount; ++i) EXPECT(back[static_cast<size_t>(i)] == kRounds * (1 + i));
}

std::atomic<bool> released{false};
void wait_for_release(void*) {
  while (!released) std::this_thread::yield();
}

// An event is waited for as it was at the call: recorded again, it completes only afterwards.
void recorded_again(OnDevice& first, OnDevice& second) {
  // A kernel is loaded with its first use, which would wait for held streams.
  CHECK(cudaSetDevice(first.device));
  fill<<<1, 1, 0, first.stream>>>(first.memory, 1, 4);
  CHECK(cudaStreamSynchronize(first.stream));
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaEventRecord(second.event, second.stream));
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaStreamWaitEvent(first.stream, second.event, 0));
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaLaunchHostFunc(second.stream, wait_for_release, nullptr));
  CHECK(cudaEventRecord(second.event, second.stream));
  CHECK(cudaStreamSynchronize(first.stream));
  EXPECT_ERROR(cudaEventQuery(second.event), cudaErrorNotReady);
  // Meanwhile a stream that waits for it holds up nobody: neither this thread nor other streams.
  cudaStream_t waiting, other;
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaStreamWaitEvent(waiting, second.event, 0));
  fill<<<1, 1, 0, other>>>(first.memory, 1, 5);
  CHECK(cudaMemcpyPeerAsync(second.memory, second.device, first.memory, first.device, sizeof(int),
                            other));
  CHECK(cudaStreamSynchronize(other));
  EXPECT_ERROR(cudaStreamQuery(waiting), cudaErrorNotReady);
  released = true;
  CHECK(cudaStreamSynchronize(waiting));
  CHECK(cudaStreamSynchronize(second.stream));
  (void)cudaGetLastError();
}

// One host memory, pinned for all devices.
void pinned(OnDevice& first, OnDevice& second) {
  int* shared = nullptr;
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaHostAlloc(&shared, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
  fill<<<blocks(kCount), 256, 0, first.stream>>>(first.memory, kCount, 100);
  CHECK(cudaMemcpyAsync(shared, first.memory, kBytes, cudaMemcpyDefault, first.stream));
  CHECK(cudaEventRecord(first.event, first.stream));
  CHECK(cudaSetDevice(second.device));
  CHECK(cudaStreamWaitEvent(second.stream, first.event, 0));
  CHECK(cudaMemcpyAsync(second.memory, shared, kBytes, cudaMemcpyDefault, second.stream));
  CHECK(cudaStreamSynchronize(second.stream));
  expect_filled(second.memory, 100);
  // Kernels of both use it directly, one after the other.
  int* seen = nullptr;
  CHECK(cudaHostGetDevicePointer(&seen, shared, 0));
  fill<<<blocks(kCount), 256, 0, second.stream>>>(seen, kCount, 7);
  CHECK(cudaStreamSynchronize(second.stream));
  for (int i = 0; i < kCount; ++i) EXPECT(shared[i] == 7 + i);
  CHECK(cudaSetDevice(first.device));
  CHECK(cudaHostGetDevicePointer(&seen, shared, 0));
  fill<<<blocks(kCount), 256, 0, first.stream>>>(first.memory, kCount, 1000);
  add<<<blocks(kCount), 256, 0, first.stream>>>(seen, first.memory, kCount);
  CHECK(cudaStreamSynchronize(first.stream));
  for (int i = 0; i < kCount; ++i) EXPECT(shared[i] == 1007 + 2 * i);
  CHECK(cudaFreeHost(shared));
}

// The second server ends when this says so; the first goes on.
void lose(OnDevice& first, OnDevice& second) {
  CHECK(cudaSetDevice(second.device));
  fill<<<blocks(kCount), 256, 0, second.stream>>>(second.memory, kCount, 1);
  CHECK(cudaStreamSynchronize(second.stream));
  std::printf("ready\n");
  std::fflush(stdout);
  std::getchar();
  cudaError_t error = cudaSuccess;
  while (error == cudaSuccess) error = cudaStreamSynchronize(second.stream);
  EXPECT(error == cudaErrorDevicesUnavailable);
  EXPECT_ERROR(cudaMalloc(&second.memory, kBytes), cudaErrorDevicesUnavailable);
  CHECK(cudaSetDevice(first.device));
  (void)cudaGetLastError();
  EXPECT_ERROR(cudaMemcpyPeer(first.memory, 0, second.memory, 1, kBytes),
               cudaErrorDevicesUnavailable);
  (void)cudaGetLastError();
  work(first, 9);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "devices") {
    show_devices();
  } else if (part == "each") {
    each_by_itself();
    std::printf("two_servers: right\n");
  } else if (part == "copies" || part == "events" || part == "pinned" || part == "again" ||
             part == "lose") {
    OnDevice first(0), second(1);
    if (part == "copies") {
      copies(first, second);
      copies(second, first);
      large_copies(first, second);
    } else if (part == "events") {
      events(first, second);
    } else if (part == "again") {
      recorded_again(first, second);
    } else if (part == "pinned") {
      // Again and again at the same addresses: what is freed is registered at no server any more.
      for (int round = 0; round < 4; ++round) {
        pinned(first, second);
        pinned(second, first);
      }
    } else {
      lose(first, second);
    }
    std::printf("two_servers: right\n");
  } else if (part == "collide") {
    collide(std::atoi(argv[2]));
  } else {
    std::fprintf(stderr, "unknown part: %s\n", part.c_str());
    return 2;
  }
  return 0;
}
