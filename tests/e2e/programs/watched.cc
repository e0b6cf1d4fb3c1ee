// Waits for about a second in cuStreamSynchronize: for a kernel, or for a host function. Prints the
// stream's handle.
#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

const char kSpin[] = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry spin()
{
  .reg .pred %p<2>;
  .reg .b64 %rd<4>;
  mov.u64 %rd1, %globaltimer;
AGAIN:
  mov.u64 %rd2, %globaltimer;
  sub.u64 %rd3, %rd2, %rd1;
  setp.lt.u64 %p1, %rd3, 900000000;
  @%p1 bra AGAIN;
  ret;
}
)ptx";

void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s gave %d\n", call, result);
  _exit(1);
}
#define NEED(call) need((call), #call)

void CUDA_CB take_long(void*) { usleep(900'000); }

}  // namespace

int main(int argc, char** argv) {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::printf("%p\n", static_cast<void*>(stream));
  if (argc > 1 && std::strcmp(argv[1], "host-function") == 0) {
    NEED(cuLaunchHostFunc(stream, take_long, nullptr));
  } else {
    CUmodule module;
    CUfunction spin;
    NEED(cuModuleLoadData(&module, kSpin));
    NEED(cuModuleGetFunction(&spin, module, "spin"));
    NEED(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  }
  NEED(cuStreamSynchronize(stream));
}
