// How much stack the functions of libcuda.so.1 use: stack_use LIMIT NAMES. Calls each function that
// the file NAMES lists, one per line, with zeros before cuInit and after it, and a program's usual
// calls, each on a thread whose stack is painted before. Prints what used most; exit code 1 if
// anything used more than LIMIT bytes, that of the thread itself included.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr size_t kStack = size_t{512} << 10;
constexpr unsigned char kPaint = 0xa5;
CUcontext context = nullptr;
bool right = true;

size_t used_by(const std::function<void()>& call) {
  auto* const stack = static_cast<unsigned char*>(
      ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(stack, kPaint, kStack);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstack(&attributes, stack, kStack);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  if (::pthread_create(&thread, &attributes, body, const_cast<std::function<void()>*>(&call)) != 0)
    std::abort();
  ::pthread_join(thread, nullptr);
  size_t untouched = 0;
  while (untouched < kStack && stack[untouched] == kPaint) ++untouched;
  ::munmap(stack, kStack);
  return kStack - untouched;
}

// What would end or change the process for the calls after it.
bool is_left_out(const std::string& name) {
  return name == "cuInit" || name == "cuCheckpointProcessCheckpoint" || name == "cuProfilerStop" ||
         name == "cuDevicePrimaryCtxReset" || name == "cuDevicePrimaryCtxReset_v2";
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s gave %d\n", call, result);
  right = false;
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__)

const char* kKernel = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 at) { ret; }
)";

std::map<std::string, size_t> of_usual_calls() {
  std::map<std::string, size_t> used;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr device = 0, managed = 0;
  void *pinned = nullptr, *mapped = nullptr;
  CUstream stream = nullptr;
  constexpr size_t kBytes = 3 << 20;
  std::vector<char> host(kBytes);
  used["cuInit"] = used_by([] { CHECK(cuInit(0)); });
  used["a primary context"] = used_by([] {
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
  });
  const auto measure = [&](const char* name, const std::function<void()>& calls) {
    used[name] = used_by([&] {
      CHECK(cuCtxSetCurrent(context));
      calls();
    });
  };
  measure("a module", [&] {
    CHECK(cuModuleLoadData(&module, kKernel));
    CHECK(cuModuleGetFunction(&function, module, "nothing"));
  });
  measure("a library", [&] {
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CHECK(cuLibraryLoadData(&library, kKernel, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
    CHECK(cuLibraryUnload(library));
  });
  measure("allocations", [&] {
    CHECK(cuMemAlloc(&device, kBytes));
    CHECK(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
    std::memset(reinterpret_cast<void*>(managed), 1, kBytes);
    CHECK(cuMemHostAlloc(&pinned, kBytes, 0));
    CHECK(cuMemHostAlloc(&mapped, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
    std::memset(mapped, 1, kBytes);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  });
  const auto launch = [&] {
    void* parameters[] = {&managed};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  };
  measure("launches", [&] {
    launch();
    CHECK(cuStreamSynchronize(stream));
    static_cast<char*>(mapped)[5] = 2;
    reinterpret_cast<char*>(managed)[5] = 2;
    launch();
    CHECK(cuCtxSynchronize());
  });
  measure("copies", [&] {
    for (const size_t bytes : {size_t{64}, size_t{50000}, kBytes}) {
      for (void* const from : {static_cast<void*>(host.data()), pinned, mapped}) {
        CHECK(cuMemcpyHtoD(device, from, bytes));
        CHECK(cuMemcpyDtoH(from, device, bytes));
        CHECK(cuMemcpyHtoDAsync(device, from, bytes, stream));
        CHECK(cuMemcpyDtoHAsync(from, device, bytes, stream));
      }
      CHECK(cuMemcpyDtoD(device, managed, bytes));
      CHECK(cuMemcpy(managed, device, bytes));
    }
    CHECK(cuStreamSynchronize(stream));
  });
  measure("host functions, events", [&] {
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    CHECK(cuEventDestroy(event));
  });
  measure("a graph", [&] {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 20; ++i) launch();
    CHECK(cuMemcpyHtoDAsync(device, pinned, 64, stream));
    CHECK(cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  });
  measure("ends", [&] {
    CHECK(cuModuleUnload(module));
    CHECK(cuMemFree(device));
    CHECK(cuMemFree(managed));
    CHECK(cuMemFreeHost(pinned));
    CHECK(cuMemFreeHost(mapped));
    CHECK(cuStreamDestroy(stream));
  });
  return used;
}

// The functions take numbers and pointers, at most sixteen.
using AnyFunction = long (*)(long, long, long, long, long, long, long, long, long, long, long, long,
                             long, long, long, long);

std::map<std::string, size_t> of_all(const std::vector<std::string>& names) {
  std::map<std::string, size_t> used;
  for (const std::string& name : names) {
    if (is_left_out(name)) continue;
    const auto function = reinterpret_cast<AnyFunction>(::dlsym(RTLD_DEFAULT, name.c_str()));
    if (function == nullptr) continue;
    used[name] = used_by([function] {
      if (context != nullptr) cuCtxSetCurrent(context);
      function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    });
  }
  return used;
}

void show(const char* what, const std::map<std::string, size_t>& used, size_t limit) {
  size_t most = 0;
  for (const auto& [name, bytes] : used) {
    most = std::max(most, bytes);
    if (bytes <= limit) continue;
    std::printf("%s uses %zu bytes of stack\n", name.c_str(), bytes);
    right = false;
  }
  std::printf("%s: %zu, at most %zu bytes\n", what, used.size(), most);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto limit = static_cast<size_t>(std::atol(argv[1]));
  std::vector<std::string> names;
  std::ifstream file(argv[2]);
  for (std::string name; std::getline(file, name);) names.push_back(name);
  if (names.size() < 500) {
    std::printf("%s lists %zu functions\n", argv[2], names.size());
    return 2;
  }
  std::printf("a thread that does nothing: %zu\n", used_by([] {}));
  show("functions before cuInit", of_all(names), limit);
  show("usual calls", of_usual_calls(), limit);
  show("functions after cuInit", of_all(names), limit);
  return right ? 0 : 1;
}
