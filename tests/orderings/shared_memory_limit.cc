// The most dynamic shared memory of a kernel is what was set for it last, whoever did so, for
// instance a thread without a context. What was set for its function in the context overrides that,
// before or afterwards; who asks the kernel learns what was set for the kernel.
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr int kMuch = 60000, kLess = 50000;
constexpr CUfunction_attribute kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

CUresult launch(CUkernel kernel, int bytes) {
  unsigned microseconds = 1;
  void* parameters[] = {&microseconds, nullptr};
  return cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1,
                        static_cast<unsigned>(bytes), nullptr, parameters, nullptr);
}

void launch_with_much(CUkernel kernel) {
  CU(launch(kernel, kMuch));
  CU(cuCtxSynchronize());
}

void set_and_launch_with_much(CUkernel kernel) {
  CU(cuKernelSetAttribute(kLimit, kMuch, kernel, 0));
  launch_with_much(kernel);
}

void may_have_less(CUkernel kernel) {
  if (launch(kernel, kMuch) != CUDA_ERROR_INVALID_VALUE)
    wrong("a launch has more dynamic shared memory than its function may have");
  CU(launch(kernel, kLess));
  CU(cuCtxSynchronize());
}

void kernel_says(CUkernel kernel, int bytes) {
  int found = 0;
  CU(cuKernelGetAttribute(&found, kLimit, kernel, 0));
  if (found != bytes) wrong("the kernel may have %d bytes, and says %d", bytes, found);
}

void function_says(CUfunction function, int bytes) {
  int found = 0;
  CU(cuFuncGetAttribute(&found, kLimit, function));
  if (found != bytes) wrong("the function may have %d bytes, and says %d", bytes, found);
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "spin"));
  step("once");
  set_and_launch_with_much(kernel);
  step("behind a thread without a context");
  std::thread([kernel] { CU(cuKernelSetAttribute(kLimit, kLess, kernel, 0)); }).join();
  set_and_launch_with_much(kernel);
  step("behind a function of the module");
  CUmodule module = nullptr;
  CU(cuLibraryGetModule(&module, library));
  const CUfunction function = kernel_of(module, "spin");
  CU(cuFuncSetAttribute(function, kLimit, kLess));
  may_have_less(kernel);
  kernel_says(kernel, kMuch);
  function_says(function, kLess);
  CU(cuKernelSetAttribute(kLimit, kMuch, kernel, 0));
  may_have_less(kernel);
  kernel_says(kernel, kMuch);
  function_says(function, kLess);
  step("in another context");
  const CUcontext other = new_context();
  launch_with_much(kernel);
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(context));
  may_have_less(kernel);
  step("as much for the kernel's function");
  CUfunction of_kernel = nullptr;
  CU(cuKernelGetFunction(&of_kernel, kernel));
  CU(cuFuncSetAttribute(of_kernel, kLimit, kMuch));
  launch_with_much(kernel);
  std::thread([kernel] { CU(cuKernelSetAttribute(kLimit, kLess, kernel, 0)); }).join();
  launch_with_much(kernel);
  kernel_says(kernel, kLess);
  function_says(function, kMuch);
  right();
}
