// A host function, or a value that the program writes, holds a stream until kernels and variables
// have been looked up, asked about, changed and used: of a module, and of a library of which a
// kernel was used before. None of these calls waits for a stream.
// sim: FARGPU_SIM_LOCKED_WAITS=1
#include <atomic>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> running{false}, released{false};

void CUDA_CB wait_for_release(void*) {
  running = true;
  while (!released) usleep(200);
  running = false;
}

// What holds the stream; a copy from pinned memory may stand behind it.
class Holder {
 public:
  Holder(bool by_function, bool with_copy) : by_function_(by_function), with_copy_(with_copy) {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, 2 * kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
    word_ = static_cast<unsigned*>(memory);
    *word_ = 0;
    CU(cuMemHostGetDevicePointer(&word_on_device_, memory, 0));
  }
  void hold() {
    released = false;
    if (by_function_) {
      CU(cuLaunchHostFunc(stream_, wait_for_release, nullptr));
      while (!running) usleep(200);
    } else {
      ++turn_;
      CU(cuStreamWaitValue32(stream_, word_on_device_, turn_, CU_STREAM_WAIT_VALUE_GEQ));
    }
    if (with_copy_)
      CU(cuMemcpyHtoDAsync(to_, reinterpret_cast<char*>(word_) + kBytes, kBytes, stream_));
  }
  void release() {
    HOLDS(cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY);
    released = true;
    *const_cast<volatile unsigned*>(word_) = turn_;
    CU(cuStreamSynchronize(stream_));
  }

 private:
  static constexpr size_t kBytes = 64 << 10;
  const bool by_function_, with_copy_;
  const CUstream stream_ = make_stream();
  const CUdeviceptr to_ = device_memory(kBytes);
  unsigned* word_ = nullptr;
  CUdeviceptr word_on_device_ = 0;
  unsigned turn_ = 0;
};

void ask_about(CUfunction function) {
  int number = 0;
  size_t bytes = 0, more_bytes = 0;
  CU(cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  HOLDS(number >= 32);
  CU(cuFuncGetParamInfo(function, 1, &bytes, &more_bytes));
  HOLDS(bytes == sizeof(CUdeviceptr));
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&number, function, 32, 0));
  HOLDS(number > 0);
  CU(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 32));
  HOLDS(bytes > 0);
  int grid = 0, block = 0;
  CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  HOLDS(grid > 0 && block > 0);
}

// Launches `load` in a stream of its own. A driver may bring its code behind the copy that waits.
void check_module(CUmodule module, CUstream stream, CUdeviceptr result) {
  step("cuModuleGetFunction behind what holds a stream");
  const CUfunction load = kernel_of(module, "load");
  step("cuModuleGetGlobal");
  CUdeviceptr variable = 0;
  size_t bytes = 0;
  CU(cuModuleGetGlobal(&variable, &bytes, module, "variable"));
  HOLDS(bytes == sizeof(int));
  step("questions about a function");
  ask_about(load);
  step("cuFuncSetAttribute");
  CU(cuFuncSetAttribute(load, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 40000));
  step("the first launch of the function");
  CU(launch(load, stream, result, variable));
}

// One kernel of the library has been looked up and launched before.
void check_library(CUlibrary library, CUkernel kernel, CUdevice device) {
  step("cuLibraryGetKernel");
  CUkernel another;
  CU(cuLibraryGetKernel(&another, library, "load"));
  step("cuLibraryGetGlobal");
  CUdeviceptr variable = 0;
  size_t bytes = 0;
  CU(cuLibraryGetGlobal(&variable, &bytes, library, "variable"));
  HOLDS(bytes == sizeof(int));
  for (const CUkernel one : {kernel, another}) {
    step("questions about a kernel");
    int number = 0;
    CU(cuKernelGetAttribute(&number, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, one, device));
    HOLDS(number >= 32);
    size_t offset = 0;
    CU(cuKernelGetParamInfo(one, 1, &offset, &bytes));
    HOLDS(offset == sizeof(CUdeviceptr));
    CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&number, reinterpret_cast<CUfunction>(one), 32,
                                                   0));
    HOLDS(number > 0);
    step("cuKernelSetAttribute");
    CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 40000, one, device));
    step("cuKernelGetFunction");
    CUfunction function;
    CU(cuKernelGetFunction(&function, one));
    step("cuFuncSetAttribute of a kernel's function");
    CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 45000));
  }
  step("cuLibraryLoadData");
  CU(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
}

}  // namespace

int main() {
  begin();
  const CUcontext first = use_primary();
  const CUcontext second = new_context();
  CU(cuCtxSetCurrent(first));
  CUdevice device = 0;
  CU(cuCtxGetDevice(&device));
  const CUstream other = make_stream();
  const CUdeviceptr result = device_memory(sizeof(int));
  for (const bool by_function : {true, false}) {
    for (const bool with_copy : {true, false}) {
      Holder holder(by_function, with_copy);
      const CUmodule module = load_kernels();
      CUlibrary library;
      CU(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
      CUkernel store;
      CU(cuLibraryGetKernel(&store, library, "store"));
      CU(launch(reinterpret_cast<CUfunction>(store), other, result, 0));
      CU(cuStreamSynchronize(other));
      step("the library in another context");
      CU(cuCtxSetCurrent(second));
      CUkernel spin;
      CU(cuLibraryGetKernel(&spin, library, "spin"));
      CU(launch(reinterpret_cast<CUfunction>(spin), nullptr, 1u));
      CU(cuCtxSynchronize());
      CU(cuCtxSetCurrent(first));
      holder.hold();
      check_module(module, other, result);
      check_library(library, store, device);
      step("the end of what holds the stream");
      holder.release();
      CU(cuStreamSynchronize(other));
      int value = 0;
      CU(cuMemcpyDtoH(&value, result, sizeof value));
      HOLDS(value == 7);
      CU(cuLibraryUnload(library));
    }
  }
  right();
}
