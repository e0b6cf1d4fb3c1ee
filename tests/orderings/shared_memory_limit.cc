// The most dynamic shared memory of a kernel is what was set for it last, whoever did so: a thread
// without a context, or somebody who has the kernel as a function of the library's module.
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kMuch = 60000, kLess = 50000;
constexpr CUfunction_attribute kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

void launch_with_much(CUkernel kernel) {
  CU(cuKernelSetAttribute(kLimit, kMuch, kernel, 0));
  unsigned microseconds = 1;
  void* parameters[] = {&microseconds, nullptr};
  CU(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, kMuch, nullptr,
                    parameters, nullptr));
  CU(cuCtxSynchronize());
}

}  // namespace

int main() {
  begin();
  use_primary();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "spin"));
  step("once");
  launch_with_much(kernel);
  step("behind a thread without a context");
  std::thread([kernel] { CU(cuKernelSetAttribute(kLimit, kLess, kernel, 0)); }).join();
  launch_with_much(kernel);
  step("behind a function of the module");
  CUmodule module = nullptr;
  CU(cuLibraryGetModule(&module, library));
  const CUfunction function = kernel_of(module, "spin");
  CU(cuFuncSetAttribute(function, kLimit, kLess));
  launch_with_much(kernel);
  right();
}
