// A program of an older CUDA runtime: what a compiler of that time would have made of a kernel, a
// variable and calls of libcudart, which is opened by its path. Usage: old_runtime LIBRARY FATBIN
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

void* library = nullptr;

template <typename Function>
Function* find(const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    std::printf("no %s\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Function*>(symbol);
}

// A call of the runtime by its name; anything but success ends the program.
template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  const int result = find<int(Arguments...)>(name)(arguments...);
  if (result == 0) return;
  const char* const text = find<const char*(int)>("cudaGetErrorName")(result);
  std::printf("%s: %s\n", name, text);
  std::exit(1);
}

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct FatbinWrapper {
  int magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  void* unused = nullptr;
};
using Stream = struct StreamTag*;
using Handle = void*;

constexpr int kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int);
constexpr int kToDevice = 1, kToHost = 2, kRelaxed = 2;
char kernel_stub, variable_stub;

void check(const char* what, const std::vector<int>& values, int factor, int added) {
  for (int i = 0; i < kCount; ++i) {
    if (values[i] == factor * i + added) continue;
    std::printf("%s: %d at %d\n", what, values[i], i);
    std::exit(1);
  }
  std::printf("%s: right\n", what);
}

void register_image(const std::vector<char>& fatbin) {
  static FatbinWrapper wrapper;
  static char kernel_name[] = "scale", variable_name[] = "summand";
  wrapper.data = fatbin.data();
  void** const image = find<void**(void*)>("__cudaRegisterFatBinary")(&wrapper);
  find<void(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*)>(
      "__cudaRegisterFunction")(image, &kernel_stub, kernel_name, kernel_name, -1, nullptr, nullptr,
                                nullptr, nullptr, nullptr);
  find<void(void**, char*, char*, const char*, int, size_t, int, int)>("__cudaRegisterVar")(
      image, &variable_stub, variable_name, variable_name, 0, sizeof(int), 0, 0);
  find<void(void**)>("__cudaRegisterFatBinaryEnd")(image);
}

void launch(const char* name, int* numbers, int factor, Stream stream) {
  int count = kCount;
  void* arguments[] = {&numbers, &factor, &count};
  call(name, static_cast<const void*>(&kernel_stub), Dim3{8}, Dim3{128},
       static_cast<void**>(arguments), size_t{0}, stream);
}

// Until CUDA 12 the runtime asks while a primary context is current that nobody retains yet.
void ask_before_any_work() {
  int can = -1;
  Handle pool = nullptr;
  char address[64] = "";
  call("cudaSetDevice", 0);
  call("cudaDeviceCanAccessPeer", &can, 0, 0);
  call("cudaDeviceGetDefaultMemPool", &pool, 0);
  call("cudaDeviceGetPCIBusId", static_cast<char*>(address), 64, 0);
  const bool right = can == 0 && pool != nullptr && address[0] != 0;
  std::printf("questions before any work: %s\n", right ? "right" : "wrong");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<char> fatbin{std::istreambuf_iterator<char>(file), {}};
  register_image(fatbin);

  int version = 0, devices = 0;
  call("cudaRuntimeGetVersion", &version);
  call("cudaGetDeviceCount", &devices);
  std::printf("runtime %d, %d device(s)\n", version, devices);
  ask_before_any_work();
  std::vector<int> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = i;
  int* numbers = nullptr;
  call("cudaMalloc", reinterpret_cast<void**>(&numbers), kBytes);
  const auto to_device = [&] {
    call("cudaMemcpy", static_cast<void*>(numbers), static_cast<const void*>(in.data()), kBytes,
         kToDevice);
  };
  const auto to_host = [&] {
    call("cudaMemcpy", static_cast<void*>(out.data()), static_cast<const void*>(numbers), kBytes,
         kToHost);
  };
  to_device();
  launch("cudaLaunchKernel", numbers, 3, nullptr);
  call("cudaDeviceSynchronize");
  to_host();
  check("a kernel", out, 3, 0);

  const int five = 5;
  call("cudaMemcpyToSymbol", static_cast<const void*>(&variable_stub),
       static_cast<const void*>(&five), sizeof(int), size_t{0}, kToDevice);
  Stream stream = nullptr;
  Handle begin = nullptr, end = nullptr;
  call("cudaStreamCreate", &stream);
  call("cudaEventCreate", &begin);
  call("cudaEventCreate", &end);
  to_device();
  call("cudaEventRecord", begin, stream);
  launch("cudaLaunchKernel", numbers, 2, stream);
  call("cudaEventRecord", end, stream);
  call("cudaMemcpyAsync", static_cast<void*>(out.data()), static_cast<const void*>(numbers), kBytes,
       kToHost, stream);
  call("cudaStreamSynchronize", stream);
  float passed = -1;
  call("cudaEventElapsedTime", &passed, begin, end);
  check(passed >= 0 ? "a stream and a variable" : "no time passed", out, 2, 5);

  to_device();
  launch("cudaLaunchCooperativeKernel", numbers, 4, stream);
  call("cudaStreamSynchronize", stream);
  to_host();
  check("a cooperative kernel", out, 4, 5);

  Handle graph = nullptr, exec = nullptr;
  to_device();
  call("cudaStreamBeginCapture", stream, kRelaxed);
  launch("cudaLaunchKernel", numbers, 1, stream);
  launch("cudaLaunchKernel", numbers, 1, stream);
  call("cudaStreamEndCapture", stream, &graph);
  call("cudaGraphInstantiateWithFlags", &exec, graph, 0ull);
  call("cudaGraphLaunch", exec, stream);
  call("cudaStreamSynchronize", stream);
  to_host();
  check("a graph", out, 1, 10);
  call("cudaGraphExecDestroy", exec);
  call("cudaGraphDestroy", graph);

  int* pooled = nullptr;
  call("cudaMallocAsync", reinterpret_cast<void**>(&pooled), kBytes, stream);
  call("cudaMemsetAsync", static_cast<void*>(pooled), 0, kBytes, stream);
  launch("cudaLaunchKernel", pooled, 1, stream);
  call("cudaMemcpyAsync", static_cast<void*>(out.data()), static_cast<const void*>(pooled), kBytes,
       kToHost, stream);
  call("cudaFreeAsync", static_cast<void*>(pooled), stream);
  call("cudaStreamSynchronize", stream);
  check("memory of a pool", out, 0, 5);

  int* pinned = nullptr;
  call("cudaMallocHost", reinterpret_cast<void**>(&pinned), kBytes);
  for (int i = 0; i < kCount; ++i) pinned[i] = i;
  launch("cudaLaunchKernel", pinned, 6, stream);
  call("cudaStreamSynchronize", stream);
  check("pinned memory", std::vector<int>(pinned, pinned + kCount), 6, 5);
  call("cudaFreeHost", static_cast<void*>(pinned));
  std::vector<char> properties(8192);
  const bool is_newer = dlsym(library, "cudaGetDeviceProperties_v2") != nullptr;
  call(is_newer ? "cudaGetDeviceProperties_v2" : "cudaGetDeviceProperties",
       static_cast<void*>(properties.data()), 0);
  std::printf("name: %s\n", properties.data());
  call("cudaStreamDestroy", stream);
  call("cudaDeviceReset");
  return 0;
}
