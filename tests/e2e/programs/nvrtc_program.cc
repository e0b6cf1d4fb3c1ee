// Compiles a kernel at run time with NVRTC and runs its PTX through the driver API. g++ and -lcuda,
// -lnvrtc.
#include <cuda.h>
#include <nvrtc.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

const char* kSource = R"cuda(
template <typename T>
__device__ T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = clamp(a * x[i] + y[i], -100.0f, 100.0f);
}
)cuda";

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", what, name);
  std::exit(1);
}

std::string compile() {
  nvrtcProgram program;
  nvrtcCreateProgram(&program, kSource, "saxpy.cu", 0, nullptr, nullptr);
  const char* options[] = {"--gpu-architecture=compute_75", "--fmad=false"};
  if (nvrtcCompileProgram(program, 2, options) != NVRTC_SUCCESS) {
    size_t bytes = 0;
    nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, ' ');
    nvrtcGetProgramLog(program, log.data());
    std::fprintf(stderr, "nvrtc: %s\n", log.c_str());
    std::exit(1);
  }
  size_t bytes = 0;
  nvrtcGetPTXSize(program, &bytes);
  std::string ptx(bytes, ' ');
  nvrtcGetPTX(program, ptx.data());
  nvrtcDestroyProgram(&program);
  return ptx;
}

}  // namespace

int main() {
  const std::string ptx = compile();
  check(cuInit(0), "cuInit");
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction saxpy;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
  check(cuModuleGetFunction(&saxpy, module, "saxpy"), "cuModuleGetFunction");
  int n = 5000;
  float a = 1.5f;
  std::vector<float> x(n), y(n), out(n);
  for (int i = 0; i < n; ++i) {
    x[i] = 0.25f * i - 500;
    y[i] = 3.0f - i;
  }
  CUdeviceptr dx, dy;
  check(cuMemAlloc(&dx, n * sizeof(float)), "cuMemAlloc");
  check(cuMemAlloc(&dy, n * sizeof(float)), "cuMemAlloc");
  check(cuMemcpyHtoD(dx, x.data(), n * sizeof(float)), "cuMemcpyHtoD");
  check(cuMemcpyHtoD(dy, y.data(), n * sizeof(float)), "cuMemcpyHtoD");
  void* arguments[] = {&a, &dx, &dy, &n};
  check(cuLaunchKernel(saxpy, (n + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr),
        "cuLaunchKernel");
  check(cuMemcpyDtoH(out.data(), dy, n * sizeof(float)), "cuMemcpyDtoH");
  for (int i = 0; i < n; ++i) {
    float want = a * x[i] + y[i];
    want = want < -100 ? -100 : want > 100 ? 100 : want;
    if (out[i] != want) {
      std::fprintf(stderr, "element %d is %f instead of %f\n", i, out[i], want);
      return 1;
    }
  }
  check(cuModuleUnload(module), "cuModuleUnload");
  check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  std::printf("nvrtc_program: right\n");
  return 0;
}
