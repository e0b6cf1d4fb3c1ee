#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

CUlibrary load(const char* image) {
  CUlibrary library = nullptr;
  EXPECT_CU(CUDA_SUCCESS,
            cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library;
}

TEST_F(ContextTest, KernelsOfALibraryRunInEveryContext) {
  CUlibrary library = load(kKernels);
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "bump"));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "none"));
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 9u);
  const auto bump = [&](unsigned times) {
    CUdeviceptr counter = 0;
    size_t bytes = 0;
    EXPECT_CU(CUDA_SUCCESS, launch(reinterpret_cast<CUfunction>(kernel), times, {}));
    EXPECT_CU(CUDA_SUCCESS, cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
    return read_word(counter);
  };
  EXPECT_EQ(bump(2), 42u);
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 1));
  EXPECT_EQ(bump(3), 43u);  // variables are per context
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, kernel));
  OK(launch(function, 1, {}));
  EXPECT_EQ(bump(1), 45u);
  OK(cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(function, 1, {}));
  EXPECT_EQ(bump(1), 43u);
  OK(cuLibraryUnload(library));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, launch(reinterpret_cast<CUfunction>(kernel), 1, {}));
}

TEST_F(ContextTest, LibrariesNeedNoContext) {
  OK(cuCtxPopCurrent(nullptr));
  CUlibrary library = load(kKernels);
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "add"));
  const char* name = nullptr;
  OK(cuKernelGetName(&name, kernel));
  EXPECT_STREQ(name, "add");
  size_t offset = 0, size = 0;
  OK(cuKernelGetParamInfo(kernel, 3, &offset, &size));
  EXPECT_EQ(offset, 24u);
  int value = 0;
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, kernel, 1));
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 1));
  EXPECT_EQ(value, 60000);
  OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
  EXPECT_EQ(value, 49152);
  CUlibrary of = nullptr;
  OK(cuKernelGetLibrary(&of, kernel));
  EXPECT_EQ(of, library);
  CUfunction function = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&function, kernel));
  OK(cuLibraryUnload(library));
  OK(cuCtxPushCurrent(context_));
}

// What is set for a kernel's function, in one context, overrides what is set for the kernel, before
// or afterwards.
TEST_F(ContextTest, AttributesOfAFunctionOverrideThoseOfItsKernel) {
  constexpr CUfunction_attribute kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUlibrary library = load(kKernels);
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "bump"));
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, kernel));
  const auto limits = [&](CUfunction of) {
    int of_function = 0, of_kernel = 0;
    EXPECT_CU(CUDA_SUCCESS, cuFuncGetAttribute(&of_function, kLimit, of));
    EXPECT_CU(CUDA_SUCCESS, cuKernelGetAttribute(&of_kernel, kLimit, kernel, 0));
    return std::pair(of_function, of_kernel);
  };
  OK(cuKernelSetAttribute(kLimit, 60000, kernel, 0));
  EXPECT_EQ(limits(function), std::pair(60000, 60000));
  OK(cuFuncSetAttribute(function, kLimit, 50000));
  EXPECT_EQ(limits(function), std::pair(50000, 60000));
  OK(cuKernelSetAttribute(kLimit, 70000, kernel, 0));
  EXPECT_EQ(limits(function), std::pair(50000, 70000));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1,
                                                     1, 1, 1, 60000, nullptr, nullptr, nullptr));
  int value = 0;
  OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 30, kernel, 0));
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function));
  EXPECT_EQ(value, 30);
  CUcontext other = nullptr;
  OK(cuCtxCreate(&other, nullptr, 0, 0));
  CUfunction in_other = nullptr;
  OK(cuKernelGetFunction(&in_other, kernel));
  EXPECT_EQ(limits(in_other), std::pair(70000, 70000));
  OK(cuCtxDestroy(other));
  EXPECT_EQ(limits(function), std::pair(50000, 70000));
  OK(cuLibraryUnload(library));
}

TEST_F(ContextTest, ABadImageIsToldWhenTheLibraryIsUsed) {
  CUlibrary library = load("no image at all");
  CUkernel kernel = nullptr;
  unsigned count = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuLibraryGetKernel(&kernel, library, "x"));
  CUmodule module = nullptr;
  OK(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 0u);
  EXPECT_CU(CUDA_ERROR_INVALID_IMAGE, cuLibraryGetModule(&module, library));
  OK(cuLibraryUnload(library));
}

TEST_F(ContextTest, TheModuleOfALibraryGoesWithIt) {
  CUlibrary library = load(kKernels);
  CUmodule module = nullptr;
  OK(cuLibraryGetModule(&module, library));
  CUfunction found = nullptr;
  OK(cuModuleGetFunction(&found, module, "fill"));
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(module));
  std::vector<CUkernel> kernels(20);
  OK(cuLibraryEnumerateKernels(kernels.data(), 20, library));
  EXPECT_EQ(kernels[9], nullptr);
  OK(cuLibraryUnload(library));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&found, module, "fill"));
}

}  // namespace
}  // namespace fargpu::sim_test
