// Which calls of the driver wait for a function of the application that runs in some other stream.
// Each call is made while such a function sleeps; a call that takes as long waits for it. What a
// driver does here decides what a worker may call while functions run in its client
// (docs/adr/0025-held-streams-and-calls-that-wait.md).
//
// usage: beside_host_function [ROUNDS]; natively and through fargpu. Prints for each call the
// longest time and in how many rounds it waited.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr auto kFunction = std::chrono::milliseconds(100);
constexpr int kStreams = 40;  // in one round: a driver may wait for the first of some dozen only

std::atomic<bool> running{false};

void CUDA_CB sleep_a_while(void*) {
  running = true;
  usleep(std::chrono::microseconds(kFunction).count());
  running = false;
}

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

constexpr const char* kKernel = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry nothing()
{
  ret;
}
)ptx";

// What a call needs before it, and what ends it afterwards, run when no function runs.
struct Case {
  std::string name;
  std::function<void()> before, call, after;
};

CUstream stream_of(unsigned flags) {
  CUstream stream;
  MUST(cuStreamCreate(&stream, flags));
  return stream;
}

std::vector<Case> cases(CUdevice device, CUcontext context) {
  struct Things {
    std::vector<CUstream> streams;
    std::vector<CUevent> events;
    CUdeviceptr memory = 0, large = 0, kept = 0, managed = 0, pooled = 0, reserved = 0;
    CUmemGenericAllocationHandle physical = 0;
    CUmemoryPool pool = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUstream idle = nullptr;
    void* pinned = nullptr;
    std::vector<char> bytes = std::vector<char>(1 << 20);
  };
  static Things it;
  it.idle = stream_of(CU_STREAM_NON_BLOCKING);
  MUST(cuMemAlloc(&it.kept, 1 << 20));
  const auto end_streams = [] {
    for (const CUstream stream : it.streams) MUST(cuStreamDestroy(stream));
    it.streams.clear();
  };
  const auto load = [] {
    MUST(cuModuleLoadData(&it.module, kKernel));
    MUST(cuModuleGetFunction(&it.function, it.module, "nothing"));
  };
  const auto unload = [] { MUST(cuModuleUnload(it.module)); };
  const auto make_graph = [load] {
    load();
    MUST(cuGraphCreate(&it.graph, 0));
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = it.function;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    CUgraphNode made;
    MUST(cuGraphAddKernelNode(&made, it.graph, nullptr, 0, &node));
  };
  const auto end_graph = [unload] {
    if (it.exec != nullptr) MUST(cuGraphExecDestroy(it.exec));
    it.exec = nullptr;
    MUST(cuGraphDestroy(it.graph));
    unload();
  };
  return {
      {"cuStreamCreate",
       {},
       [] {
         for (int i = 0; i < kStreams; ++i) it.streams.push_back(stream_of(CU_STREAM_NON_BLOCKING));
       },
       end_streams},
      {"cuStreamCreate, blocking",
       {},
       [] {
         for (int i = 0; i < kStreams; ++i) it.streams.push_back(stream_of(CU_STREAM_DEFAULT));
       },
       end_streams},
      {"cuStreamCreateWithPriority",
       {},
       [] {
         for (int i = 0; i < kStreams; ++i) {
           MUST(cuStreamCreateWithPriority(&it.streams.emplace_back(), CU_STREAM_NON_BLOCKING, -5));
         }
       },
       end_streams},
      {"cuStreamDestroy",
       [] { it.streams.push_back(stream_of(CU_STREAM_NON_BLOCKING)); },
       end_streams,
       {}},
      {"cuEventCreate",
       {},
       [] {
         for (int i = 0; i < 1000; ++i) MUST(cuEventCreate(&it.events.emplace_back(), 0));
       },
       [] {
         for (const CUevent event : it.events) MUST(cuEventDestroy(event));
         it.events.clear();
       }},
      {"cuMemAlloc, 4 KiB",
       {},
       [] { MUST(cuMemAlloc(&it.memory, 4096)); },
       [] { MUST(cuMemFree(it.memory)); }},
      {"cuMemAlloc, 256 MiB",
       {},
       [] { MUST(cuMemAlloc(&it.large, 256 << 20)); },
       [] { MUST(cuMemFree(it.large)); }},
      {"cuMemAllocManaged",
       {},
       [] { MUST(cuMemAllocManaged(&it.managed, 4096, CU_MEM_ATTACH_GLOBAL)); },
       [] { MUST(cuMemFree(it.managed)); }},
      {"cuMemHostAlloc",
       {},
       [] { MUST(cuMemHostAlloc(&it.pinned, 1 << 20, 0)); },
       [] { MUST(cuMemFreeHost(it.pinned)); }},
      {"cuMemAllocAsync",
       {},
       [] { MUST(cuMemAllocAsync(&it.pooled, 1 << 20, it.idle)); },
       [] {
         MUST(cuMemFreeAsync(it.pooled, it.idle));
         MUST(cuStreamSynchronize(it.idle));
       }},
      {"cuMemPoolCreate",
       {},
       [device] {
         CUmemPoolProps properties{};
         properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
         MUST(cuMemPoolCreate(&it.pool, &properties));
       },
       [] { MUST(cuMemPoolDestroy(it.pool)); }},
      {"cuMemCreate, cuMemMap",
       {},
       [device] {
         CUmemAllocationProp properties{};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
         const size_t size = 2 << 20;
         MUST(cuMemCreate(&it.physical, size, &properties, 0));
         MUST(cuMemAddressReserve(&it.reserved, size, 0, 0, 0));
         MUST(cuMemMap(it.reserved, size, 0, it.physical, 0));
         const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
         MUST(cuMemSetAccess(it.reserved, size, &access, 1));
       },
       [] {
         MUST(cuMemUnmap(it.reserved, 2 << 20));
         MUST(cuMemAddressFree(it.reserved, 2 << 20));
         MUST(cuMemRelease(it.physical));
       }},
      {"cuModuleLoadData", {}, [] { MUST(cuModuleLoadData(&it.module, kKernel)); }, unload},
      {"cuModuleGetFunction", [] { MUST(cuModuleLoadData(&it.module, kKernel)); },
       [] { MUST(cuModuleGetFunction(&it.function, it.module, "nothing")); }, unload},
      {"the first launch of a kernel", load,
       [] { MUST(cuLaunchKernel(it.function, 1, 1, 1, 1, 1, 1, 0, it.idle, nullptr, nullptr)); },
       unload},
      {"cuGraphInstantiate", make_graph, [] { MUST(cuGraphInstantiate(&it.exec, it.graph, 0)); },
       end_graph},
      {"cuGraphUpload",
       [make_graph] {
         make_graph();
         MUST(cuGraphInstantiate(&it.exec, it.graph, 0));
       },
       [] { MUST(cuGraphUpload(it.exec, it.idle)); }, end_graph},
      {"cuMemcpyHtoD",
       {},
       [] { MUST(cuMemcpyHtoD(it.kept, it.bytes.data(), it.bytes.size())); },
       {}},
      {"cuMemcpyDtoH",
       {},
       [] { MUST(cuMemcpyDtoH(it.bytes.data(), it.kept, it.bytes.size())); },
       {}},
      {"cuMemsetD8", {}, [] { MUST(cuMemsetD8(it.kept, 1, it.bytes.size())); }, {}},
      {"cuMemFree",
       [] { MUST(cuMemAlloc(&it.memory, 4096)); },
       [] { MUST(cuMemFree(it.memory)); },
       {}},
      {"cuCtxCreate",
       {},
       [device, context] {
#if CUDA_VERSION >= 13000
         MUST(cuCtxCreate(&it.context, nullptr, 0, device));
#else
         MUST(cuCtxCreate(&it.context, 0, device));
#endif
         MUST(cuCtxSetCurrent(context));
       },
       [context] {
         MUST(cuCtxDestroy(it.context));
         MUST(cuCtxSetCurrent(context));
       }},
  };
}

}  // namespace

int main(int count, char** values) {
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const int rounds = count > 1 ? std::atoi(values[1]) : 3;
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  const CUstream busy = stream_of(CU_STREAM_NON_BLOCKING);
  for (const Case& each : cases(device, context)) {
    double longest = 0;
    int waited = 0;
    for (int round = 0; round < rounds; ++round) {
      if (each.before) each.before();
      MUST(cuLaunchHostFunc(busy, sleep_a_while, nullptr));
      while (!running) usleep(100);
      const auto begin = Clock::now();
      each.call();
      const bool late = !running;
      longest = std::max(longest, Milliseconds(Clock::now() - begin).count());
      waited += late ? 1 : 0;
      MUST(cuStreamSynchronize(busy));
      if (each.after) each.after();
    }
    std::printf("%-32s %8.2f ms, waited in %d of %d rounds\n", each.name.c_str(), longest, waited,
                rounds);
    std::fflush(stdout);
  }
}
