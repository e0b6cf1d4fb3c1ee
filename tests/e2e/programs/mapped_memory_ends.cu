// Mapped memory that a kernel has written and nobody has looked at, when something ends:
//   exit   a function of atexit reads it, behind this library's own
//   later  the same some time later, where nobody has found that no work is left
//   lost   a line on stdin comes, and then it is read
//   fork   a child reads it
//   copied a copy that is made here, not in the worker, has used it before
// With "registered" behind it: registered memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "expect.h"

static constexpr size_t kCount = 1 << 20;
static int* memory;
static bool later;

__global__ void number(int* to, size_t count) {
  const size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (at < count) to[at] = static_cast<int>(at) + 1;
}

static void look() {
  if (later) usleep(50'000);
  for (size_t at = 0; at < kCount; at += 1000) EXPECT(memory[at] == static_cast<int>(at) + 1);
  std::printf("seen\n");
  std::fflush(stdout);
}

int main(int count, char** values) {
  EXPECT(count == 2 || (count == 3 && std::strcmp(values[2], "registered") == 0));
  const char* const way = values[1];
  later = std::strcmp(way, "later") == 0;
  const bool at_exit = later || std::strcmp(way, "exit") == 0;
  if (at_exit) std::atexit(look);
  if (count == 2) {
    CHECK(cudaHostAlloc(&memory, kCount * sizeof(int), cudaHostAllocMapped));
  } else {
    memory = static_cast<int*>(mmap(nullptr, kCount * sizeof(int), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(cudaHostRegister(memory, kCount * sizeof(int), cudaHostRegisterMapped));
  }
  number<<<kCount / 256, 256>>>(memory, kCount);
  CHECK(later ? cudaStreamSynchronize(nullptr) : cudaDeviceSynchronize());
  std::printf("ready\n");
  std::fflush(stdout);
  if (at_exit) return 0;
  if (std::strcmp(way, "lost") == 0) {
    (void)std::getchar();
    look();
    return 0;
  }
  if (std::strcmp(way, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(memory[5] == 6 ? 0 : 1);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    std::printf("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    look();
    return 0;
  }
  // A source that is read before the call returns.
  int* device;
  CHECK(cudaMalloc(&device, kCount * sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  void* to[] = {device};
  const void* from[] = {memory};
  const size_t bytes[] = {kCount * sizeof(int)};
  size_t first = 0;
  CHECK(cudaMemcpyBatchAsync(to, from, bytes, 1, &attributes, &first, 1, stream));
  std::vector<int> back(kCount);
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(back.data(), device, bytes[0], cudaMemcpyDeviceToHost));
  for (size_t at = 0; at < kCount; ++at) EXPECT(back[at] == static_cast<int>(at) + 1);
  for (int round = 1; round <= 5; ++round) {
    memory[3] = round;
    number<<<2, 256>>>(memory + 4, 500);
    CHECK(cudaDeviceSynchronize());
    EXPECT(memory[3] == round && memory[4] == 1 && memory[503] == 500);
    memory[503] = 0;
  }
  std::printf("seen\n");
  return 0;
}
