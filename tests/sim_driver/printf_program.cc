// Kernels print between lines of the program; the test compares the whole output.
#include <cstdio>
#include <cstdlib>

#include "tests/sim_driver/support.h"

namespace {

constexpr char kPrinting[] = R"(.version 7.5
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 first_format[] = {116,104,114,101,97,100,32,37,100,32,111,102,32,98,108,111,
    99,107,32,37,100,58,32,37,100,10,0};
.global .align 1 .b8 second_format[] = {115,101,99,111,110,100,32,37,100,10,0};

.visible .entry first()
{
  .local .align 8 .b8 frame[16];
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .param .b64 a;
  .param .b64 b;
  .param .b32 c;
  mov.u64 %rd1, frame;
  cvta.local.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, 42;
  st.local.u32 [%rd1], %r1;
  st.local.u32 [%rd1+4], %r2;
  st.local.u32 [%rd1+8], %r3;
  mov.u64 %rd3, first_format;
  cvta.global.u64 %rd3, %rd3;
  st.param.b64 [a], %rd3;
  st.param.b64 [b], %rd2;
  call.uni (c), vprintf, (a, b);
  ret;
}

.visible .entry second(.param .u32 number)
{
  .local .align 8 .b8 frame[8];
  .reg .b32 %r1;
  .reg .b64 %rd<4>;
  .param .b64 a;
  .param .b64 b;
  .param .b32 c;
  ld.param.u32 %r1, [number];
  mov.u64 %rd1, frame;
  cvta.local.u64 %rd2, %rd1;
  st.local.u32 [%rd1], %r1;
  mov.u64 %rd3, second_format;
  cvta.global.u64 %rd3, %rd3;
  st.param.b64 [a], %rd3;
  st.param.b64 [b], %rd2;
  call.uni (c), vprintf, (a, b);
  ret;
}
)";

void need(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("failed: %s\n", fargpu::sim_test::name_of(result).c_str());
  std::exit(1);
}

}  // namespace

int main() {
  need(cuInit(0));
  CUcontext context = nullptr;
  need(cuCtxCreate(&context, nullptr, 0, 0));
  CUmodule module = nullptr;
  CUfunction first = nullptr, second = nullptr;
  need(cuModuleLoadData(&module, kPrinting));
  need(cuModuleGetFunction(&first, module, "first"));
  need(cuModuleGetFunction(&second, module, "second"));
  std::printf("before\n");
  need(cuLaunchKernel(first, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  need(cuCtxSynchronize());
  std::printf("after sync\n");
  for (int i = 1; i <= 3; ++i) {
    void* parameters[] = {&i};
    need(cuLaunchKernel(second, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  }
  need(cuCtxDestroy(context));
  std::printf("end\n");
  return 0;
}
