// reported COUNT [spawn|small]: calls whose number, class, bytes and routes the test knows, COUNT
// times those of each class. With `spawn` a second process does the same. With `small` there is no
// copy that may have to wait for room in a socket.
#include <cuda.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "driver_check.h"

extern char** environ;

namespace {

constexpr size_t kSmall = 1000, kLarge = 1 << 20, kPinned = 64 << 10;
constexpr auto kHeld = std::chrono::milliseconds(200);
constexpr const char* kPtx = R"(.version 7.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
)";

void CUDA_CB sleep_a_while(void*) { std::this_thread::sleep_for(kHeld); }

int copies(CUdeviceptr memory, bool large) {
  std::vector<char> pageable(kLarge);
  for (int i = 0; i < 3; ++i) CHECK(cuMemcpyHtoD(memory, pageable.data(), kSmall));
  if (large) CHECK(cuMemcpyHtoD(memory, pageable.data(), kLarge));
  for (int i = 0; i < 2; ++i) CHECK(cuMemcpyDtoH(pageable.data(), memory, kSmall));
  void* pinned = nullptr;
  CHECK(cuMemHostAlloc(&pinned, kPinned, 0));
  CHECK(cuMemcpyHtoDAsync(memory, pinned, kPinned, nullptr));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemFreeHost(pinned));
  return 0;
}

int images() {
  for (int i = 0; i < 3; ++i) {
    CUmodule module = nullptr;
    CHECK(cuModuleLoadData(&module, kPtx));
    CHECK(cuModuleUnload(module));
  }
  return 0;
}

int counted(CUcontext context, CUdeviceptr memory, int count) {
  CUdevice device = 0;
  for (int i = 0; i < count; ++i) {
    CHECK(cuCtxGetDevice(&device));
    for (int j = 0; j < 2; ++j) CHECK(cuMemsetD8Async(memory, 1, 8, nullptr));
    for (int j = 0; j < 3; ++j) CHECK(cuStreamSynchronize(nullptr));
  }
  // Threads that have ended by the time of the report, one after another and side by side.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([context] {
        CUdevice own = 0;
        cuCtxSetCurrent(context);
        for (int j = 0; j < 5; ++j) cuCtxGetDevice(&own);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return 0;
}

int spawn(char** values) {
  char* const arguments[] = {values[0], values[1], nullptr};
  pid_t child = 0;
  int status = 0;
  if (::posix_spawn(&child, values[0], nullptr, nullptr, arguments, environ) != 0) return 1;
  return ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** values) {
  if (argc < 2) return 2;
  const std::string mode = argc == 3 ? values[2] : "";
  if (mode == "spawn" && spawn(values) != 0) return 1;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&memory, kLarge));
  if (counted(context, memory, std::atoi(values[1])) != 0 || copies(memory, mode != "small") != 0 ||
      images() != 0)
    return 1;
  CHECK(cuLaunchHostFunc(nullptr, sleep_a_while, nullptr));
  CHECK(cuStreamSynchronize(nullptr));
  for (int i = 0; i < 2; ++i) {
    if (cuGraphicsUnregisterResource(nullptr) != CUDA_ERROR_NOT_SUPPORTED) return 1;
  }
  // Not exported, so it has no opcode.
  void* found = nullptr;
  CHECK(cuGetProcAddress("cuGLInit", &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  if (reinterpret_cast<CUresult (*)()>(found)() != CUDA_ERROR_NOT_SUPPORTED) return 1;
  return 0;
}
