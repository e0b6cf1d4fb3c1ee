// Options of links: what is linked is run, and calls tell what they refuse.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/conformance/conformance.h"

namespace {

//   denormals(p)   p[2] = p[0] + p[1], of which an arithmetic that flushes denormals makes 0
constexpr const char* kDenormals = R"ptx(
.version 8.0
.target sm_75
.address_size 64
.visible .entry denormals(.param .u64 p)
{
  .reg .b64 %rd<2>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [p];
  ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd1+4];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd1+8], %f3;
  ret;
})ptx";

// Those for LTO and arithmetic are for LTO-IR alone: PTX stays what it is.
void of_the_whole_link() {
  std::printf("-- of the whole link\n");
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 12));
  for (const CUjit_option option :
       {CU_JIT_LTO, CU_JIT_FTZ, CU_JIT_PREC_DIV, CU_JIT_PREC_SQRT, CU_JIT_FMA}) {
    std::printf("option %d\n", static_cast<int>(option));
    CUjit_option options[] = {option, CU_JIT_LTO};
    void* values[] = {reinterpret_cast<void*>(1), reinterpret_cast<void*>(1)};
    CUlinkState link = nullptr;
    void* image = nullptr;
    size_t bytes = 0;
    const unsigned count = option == CU_JIT_LTO ? 1 : 2;
    SHOW(cuLinkCreate(count, options, values, &link));
    SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kDenormals),
                       std::strlen(kDenormals) + 1, "denormals", 0, nullptr, nullptr));
    SHOW(cuLinkComplete(link, &image, &bytes));
    CUmodule module;
    CUfunction function;
    NEED(cuModuleLoadData(&module, image));
    NEED(cuModuleGetFunction(&function, module, "denormals"));
    SHOW(cuLinkDestroy(link));
    uint32_t words[3] = {0x101, 0x202, 0};
    NEED(cuMemcpyHtoD(p, words, sizeof words));
    void* parameters[] = {&p};
    SHOW(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    NEED(cuMemcpyDtoH(words, p, sizeof words));
    VALUE(words[2]);
    NEED(cuModuleUnload(module));
  }
  NEED(cuMemFree(p));
}

// What is the whole link's is refused. Such a link ends before it is whole.
void of_an_input() {
  std::printf("-- of an input\n");
  for (const CUjit_option option :
       {CU_JIT_LTO, CU_JIT_TARGET_FROM_CUCONTEXT, CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES,
        CU_JIT_THREADS_PER_BLOCK, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_SPLIT_COMPILE}) {
    CUlinkState link = nullptr;
    CUjit_option own = option;
    void* value = reinterpret_cast<void*>(1);
    void* image = nullptr;
    NEED(cuLinkCreate(0, nullptr, nullptr, &link));
    const CUresult result =
        cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kDenormals),
                      std::strlen(kDenormals) + 1, "denormals", 1, &own, &value);
    std::printf("option %d of an input: %s\n", static_cast<int>(option), error_name(result));
    if (result == CUDA_SUCCESS) SHOW(cuLinkComplete(link, &image, nullptr));
    SHOW(cuLinkDestroy(link));
  }
}

// Each thread has a link of its own.
void at_once() {
  std::printf("-- at once\n");
  constexpr int kThreads = 4, kLinks = 8;
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  std::atomic<int> made{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([context, i, &made, &refused] {
      NEED(cuCtxSetCurrent(context));
      for (int j = 0; j < kLinks; ++j) {
        CUlinkState link = nullptr;
        void* image = nullptr;
        NEED(cuLinkCreate(0, nullptr, nullptr, &link));
        // Some of them end before they are whole.
        const char* const text = (i + j) % 3 == 0 ? "nonsense" : kDenormals;
        const CUresult result = cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(text),
                                              std::strlen(text) + 1, "input", 0, nullptr, nullptr);
        if (result != CUDA_SUCCESS)
          ++refused;
        else if (cuLinkComplete(link, &image, nullptr) == CUDA_SUCCESS)
          ++made;
        NEED(cuLinkDestroy(link));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  VALUE(made);
  VALUE(refused);
}

}  // namespace

int main() {
  make_context();
  of_the_whole_link();
  of_an_input();
  at_once();
  return 0;
}
