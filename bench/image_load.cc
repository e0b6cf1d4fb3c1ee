// How long cuModuleLoad takes for each of the given files (fatbin, PTX, cubin), in this order. What
// a server has seen before it need not be sent, so a fresh daemon shows what the way of the bytes
// costs:
//   export FARGPU_LINK="rtt=200us,bandwidth=1Gbps" FARGPU_COMPRESS=none
//   fargpu run --sim -- image_load a.ptx b.fatbin
// Loads libcuda.so.1 when it runs. A load that the driver refuses is timed too: the image has
// travelled.
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

template <typename Function>
Function* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "image_load: libcuda.so.1 has no %s\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Function*>(found);
}

void require(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "image_load: %s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

}  // namespace

int main(int count, char** files) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr || count < 2) {
    std::fprintf(stderr, "usage: image_load FILE... (and libcuda.so.1 must be found)\n");
    return 2;
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  require(find<CUresult(unsigned)>(library, "cuInit")(0), "cuInit");
  require(find<CUresult(CUdevice*, int)>(library, "cuDeviceGet")(&device, 0), "cuDeviceGet");
  require(
      find<CUresult(CUcontext*, CUdevice)>(library, "cuDevicePrimaryCtxRetain")(&context, device),
      "cuDevicePrimaryCtxRetain");
  require(find<CUresult(CUcontext)>(library, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  auto* load = find<CUresult(CUmodule*, const char*)>(library, "cuModuleLoad");
  for (int i = 1; i < count; ++i) {
    CUmodule module = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    const CUresult result = load(&module, files[i]);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    std::printf("%-40s %10.2f ms  result %d\n", files[i], took.count(), static_cast<int>(result));
  }
  return 0;
}
