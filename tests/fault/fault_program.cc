// What the fault tests run: works with the driver API, prints "ready", then on each line of stdin
// tries one more call and prints the name of its result and whether it took long. fault_program
// [init | unsupported | interposed | runaway (a kernel never ends) | crowded (and launches are
// queued behind it) | launching (and a thread goes on launching) | sending (a thread sends as much
// as it can) | copies (of pinned and registered memory wait behind a function that never returns) |
// function (of four seconds, and a copy behind it) | busy (the same, and a thread goes on
// launching)]
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>

// The address sanitizer asks at the end of a process. In a child of fork its locks may be held for
// good, by a thread of the parent: there it is not to look for leaks.
bool is_child = false;
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return is_child ? 1 : 0;
}

namespace {

constexpr const char* kForever = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry forever()
{
again:
  bra again;
}
)ptx";

// Kernels that never end, on every multiprocessor: the first.
CUresult run_away(int kernels) {
  CUmodule module;
  CUfunction forever;
  CUresult result = cuModuleLoadData(&module, kForever);
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&forever, module, "forever");
  for (int i = 0; i < kernels && result == CUDA_SUCCESS; ++i) {
    result = cuLaunchKernel(forever, 512, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  return result;
}

// A thread that works until it fails, or for ever.
template <typename Call>
void begin_thread(CUcontext context, Call call) {
  std::thread([context, call] {
    cuCtxSetCurrent(context);
    while (call() == CUDA_SUCCESS) {
    }
    for (;;) pause();
  }).detach();
}

void CUDA_CB wait_for_ever(void*) {
  for (;;) pause();
}

constexpr size_t kCopied = 4 << 20;
void* pinned = nullptr;
alignas(4096) char registered[kCopied];
CUstream held = nullptr;

CUresult begin_copies() {
  CUdeviceptr device = 0;
  CUresult result = cuStreamCreate(&held, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) result = cuMemAlloc(&device, kCopied);
  if (result == CUDA_SUCCESS) result = cuMemHostAlloc(&pinned, kCopied, 0);
  if (result == CUDA_SUCCESS) result = cuMemHostRegister(registered, kCopied, 0);
  if (result == CUDA_SUCCESS) result = cuLaunchHostFunc(held, wait_for_ever, nullptr);
  for (void* const host : {pinned, static_cast<void*>(registered)}) {
    if (result == CUDA_SUCCESS) result = cuMemcpyDtoHAsync(host, device, kCopied, held);
    if (result == CUDA_SUCCESS) result = cuMemcpyHtoDAsync(device, host, kCopied, held);
  }
  return result;
}

void CUDA_CB take_four_seconds(void*) { sleep(4); }

// The copy brings 7, once the function has returned.
CUresult begin_function(CUdeviceptr memory) {
  CUresult result = cuStreamCreate(&held, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) result = cuMemHostAlloc(&pinned, 1, 0);
  if (result == CUDA_SUCCESS) result = cuLaunchHostFunc(held, take_four_seconds, nullptr);
  if (result == CUDA_SUCCESS) result = cuMemsetD8Async(memory, 7, 1, held);
  return result == CUDA_SUCCESS ? cuMemcpyDtoHAsync(pinned, memory, 1, held) : result;
}

const char* name_of(CUresult result) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr ? name : "?";
}

}  // namespace

int main(int count, char** values) {
  const char* mode = count > 1 ? values[1] : "work";
  CUresult result = cuInit(0);
  if (std::strcmp(mode, "init") == 0 || result != CUDA_SUCCESS) {
    std::printf("cuInit: %s\n", name_of(result));
    return result == CUDA_SUCCESS ? 0 : 4;
  }
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory = 0;
  if (std::strcmp(mode, "interposed") == 0) {
    void* entry = nullptr;
    cuGetProcAddress("cuMemAlloc", &entry, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
    if (cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || entry == nullptr) {
      return 5;
    }
    std::printf("linked: %s\n", name_of(cuMemAlloc(&memory, 64)));
    std::printf("asked for: %s\n",
                name_of(reinterpret_cast<decltype(&cuMemAlloc)>(entry)(&memory, 64)));
    return 0;
  }
  if (cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS ||
      (result = cuMemAlloc(&memory, 1 << 20)) != CUDA_SUCCESS) {
    std::printf("no context: %s\n", name_of(result));
    return 5;
  }
  if (std::strcmp(mode, "unsupported") == 0) {
    CUmulticastObjectProp properties{};
    CUmemGenericAllocationHandle object = 0;
    for (int i = 0; i < 3; ++i)
      std::printf("cuMulticastCreate: %s\n", name_of(cuMulticastCreate(&object, &properties)));
    std::printf("cuMemsetD8: %s\n", name_of(cuMemsetD8(memory, 1, 100)));
    return 0;
  }
  const bool crowded = std::strcmp(mode, "crowded") == 0;
  const bool launching = std::strcmp(mode, "launching") == 0;
  if ((crowded || launching || std::strcmp(mode, "runaway") == 0) &&
      (result = run_away(crowded ? 300 : 1)) != CUDA_SUCCESS) {
    std::printf("no kernel: %s\n", name_of(result));
    return 5;
  }
  const bool busy = std::strcmp(mode, "busy") == 0;
  if ((busy || std::strcmp(mode, "function") == 0) &&
      (result = begin_function(memory)) != CUDA_SUCCESS) {
    std::printf("no function: %s\n", name_of(result));
    return 5;
  }
  if (busy) begin_thread(context, [memory] { return cuMemsetD8Async(memory + 64, 1, 1, nullptr); });
  if (launching) begin_thread(context, [memory] { return cuMemsetD8Async(memory, 1, 1, nullptr); });
  if (std::strcmp(mode, "sending") == 0) {
    CUevent event;
    if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return 5;
    begin_thread(context, [event] { return cuEventRecord(event, nullptr); });
  }
  if (std::strcmp(mode, "copies") == 0 && (result = begin_copies()) != CUDA_SUCCESS) {
    std::printf("no copies: %s\n", name_of(result));
    return 5;
  }
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    char byte = 0;
    if (line == "copy") result = cuMemcpyDtoH(&byte, memory, 1);
    if (line == "set") result = cuMemsetD8Async(memory, 1, 100, nullptr);
    if (line == "sync") result = cuCtxSynchronize();
    if (line == "alloc") result = cuMemAlloc(&memory, 64);
    if (line == "free") result = cuMemFree(memory);
    if (line == "unpin") result = cuMemFreeHost(pinned);
    if (line == "unregister") result = cuMemHostUnregister(registered);
    if (line == "wait") result = cuStreamSynchronize(held);
    if (line == "brought")
      result = *static_cast<char*>(pinned) == 7 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (line == "copy more") result = cuMemcpyDtoHAsync(registered, memory, 64, held);
    if (line == "fork") {  // a child that ends as programs do
      int status = -1;
      const pid_t child = fork();
      is_child = child == 0;
      if (child == 0) std::exit(cuStreamSynchronize(held) == CUDA_SUCCESS ? 1 : 0);
      result =
          waitpid(child, &status, 0) == child && status == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
    const bool slow = std::chrono::steady_clock::now() - begin > std::chrono::seconds(20);
    std::printf("%s: %s%s\n", line.c_str(), name_of(result), slow ? " (slow)" : "");
    std::fflush(stdout);
  }
  return 0;
}
