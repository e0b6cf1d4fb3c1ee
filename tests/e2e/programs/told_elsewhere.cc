// told_elsewhere MEBIBYTES: two processes have an event and host memory in common. The parent has
// registered the memory, copies so much from the device into it, asynchronously, and records the
// event; or a graph of its own does. The child waits for the event: the bytes must be there.
#include <cuda.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "driver_check.h"

namespace {

constexpr unsigned char kRounds = 6;  // every other one by a graph

struct Common {
  int to_child[2], to_parent[2];
  unsigned char* memory;
  size_t bytes;
};

int begin() {
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  return 0;
}

template <typename T>
bool give(int descriptor, const T& value) {
  return write(descriptor, &value, sizeof value) == sizeof value;
}
template <typename T>
bool take(int descriptor, T& value) {
  return read(descriptor, &value, sizeof value) == sizeof value;
}

int child(const Common& common) {
  CUipcEventHandle handle{};
  if (begin() != 0 || !take(common.to_child[0], handle)) return 2;
  CUevent event = nullptr;
  CHECK(cuIpcOpenEventHandle(&event, handle));
  int wrong = 0;
  for (unsigned char round = 1; round <= kRounds; ++round) {
    unsigned char recorded = 0;
    if (!take(common.to_child[0], recorded)) return 2;
    CHECK(cuEventSynchronize(event));
    bool right = true;
    for (size_t i = 0; i < common.bytes; i += 4096) right = right && common.memory[i] == round;
    wrong += right && common.memory[common.bytes - 1] == round ? 0 : 1;
    if (!give(common.to_parent[1], round)) return 2;
  }
  if (wrong > 0) std::printf("%d of %d times the bytes were not there\n", wrong, kRounds);
  return wrong > 0 ? 1 : 0;
}

int parent(const Common& common) {
  if (begin() != 0) return 2;
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  CUipcEventHandle handle{};
  CHECK(cuIpcGetEventHandle(&handle, event));
  if (!give(common.to_child[1], handle)) return 2;
  CHECK(cuMemHostRegister(common.memory, common.bytes, 0));
  CUdeviceptr device = 0;
  CHECK(cuMemAlloc(&device, common.bytes));
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
  CUgraphExec exec = nullptr;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (unsigned char round = 1; round <= kRounds; ++round) {
    CHECK(cuMemsetD8Async(device, round, common.bytes, stream));
    CHECK(cuMemcpyDtoHAsync(common.memory, device, common.bytes, stream));
    if (round % 2 == 0) {
      CHECK(cuGraphLaunch(exec, stream));
    } else {
      CHECK(cuEventRecord(event, stream));
    }
    unsigned char seen = 0;
    if (!give(common.to_child[1], round) || !take(common.to_parent[0], seen)) return 2;
    CHECK(cuStreamSynchronize(stream));
  }
  CHECK(cuMemHostUnregister(common.memory));
  return 0;
}

}  // namespace

int main(int count, char** values) {
  if (count != 2) return 2;
  Common common{};
  common.bytes = std::strtoul(values[1], nullptr, 10) << 20;
  void* const memory =
      mmap(nullptr, common.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || pipe(common.to_child) != 0 || pipe(common.to_parent) != 0) return 2;
  common.memory = static_cast<unsigned char*>(memory);
  alarm(60);
  const pid_t other = fork();
  if (other == 0) return child(common);
  const int mine = parent(common);
  close(common.to_child[1]);
  int status = 0;
  waitpid(other, &status, 0);
  return mine != 0 || status != 0 ? 1 : 0;
}
