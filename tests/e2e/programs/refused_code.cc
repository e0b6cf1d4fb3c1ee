// Code that the simulated GPU does not take, loaded twice, and a kernel that fails. The program
// prints no error, as frameworks do.
#include "driver_check.h"

namespace {

constexpr char kUnknown[] = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry f()
{
  frobnicate.u32 1, 2;
  ret;
}
)ptx";
constexpr char kWild[] = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry wild()
{
  .reg .b64 %a;
  mov.u64 %a, 8;
  st.global.u32 [%a], 1;
  ret;
}
)ptx";
constexpr char kMachineCode[64] = "\177ELF\2\1\1";

bool is_refused(const void* image, CUresult error) {
  CUmodule module;
  return cuModuleLoadData(&module, image) == error;
}

}  // namespace

int main() {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    right &= is_refused(kUnknown, CUDA_ERROR_INVALID_PTX);
    right &= is_refused(kMachineCode, CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
  CUmodule module;
  CUfunction wild;
  CHECK(cuModuleLoadData(&module, kWild));
  CHECK(cuModuleGetFunction(&wild, module, "wild"));
  CHECK(cuLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  right &= cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS;
  if (right) std::printf("refused_code: right\n");
  return right ? 0 : 1;
}
