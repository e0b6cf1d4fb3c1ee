// One program, two devices, which may be of two servers. The first argument says what it does with
// them; each part checks its results.
#include <cstring>
#include <string>
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

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "devices") {
    show_devices();
  } else if (part == "each") {
    each_by_itself();
    std::printf("two_servers: right\n");
  } else if (part == "collide") {
    collide(std::atoi(argv[2]));
  } else {
    std::fprintf(stderr, "unknown part: %s\n", part.c_str());
    return 2;
  }
  return 0;
}
