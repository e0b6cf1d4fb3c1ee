// Attributes of a library's kernel, of its function in two contexts, and of work: whose value
// counts, whoever set one first. CUDA says that what is set for the function overrides what is set
// for the kernel, before or afterwards, and that a kernel tells what was set for it.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

constexpr CUfunction_attribute kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
constexpr CUfunction_attribute kCarveout = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;

CUlibrary library;
CUkernel kernel;

CUresult launch(CUfunction function, unsigned bytes) {
  const CUresult result =
      cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, bytes, nullptr, nullptr, nullptr);
  return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

CUresult add_node(unsigned bytes, bool of_kernel) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS params{};
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.sharedMemBytes = bytes;
  if (of_kernel)
    params.kern = kernel;
  else
    NEED(cuKernelGetFunction(&params.func, kernel));
  const CUresult result = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
  NEED(cuGraphDestroy(graph));
  return result;
}

CUresult capture(unsigned bytes) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUresult result = cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1,
                                         bytes, stream, nullptr, nullptr);
  if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) NEED(cuGraphDestroy(graph));
  NEED(cuStreamDestroy(stream));
  return result;
}

// What everybody says of it in the current context.
void tell(const char* when) {
  CUfunction function = nullptr, of_module = nullptr;
  CUmodule module = nullptr;
  NEED(cuKernelGetFunction(&function, kernel));
  NEED(cuLibraryGetModule(&module, library));
  NEED(cuModuleGetFunction(&of_module, module, "bump"));
  int values[4]{};
  NEED(cuKernelGetAttribute(&values[0], kLimit, kernel, 0));
  NEED(cuFuncGetAttribute(&values[1], kLimit, function));
  NEED(cuFuncGetAttribute(&values[2], kLimit, of_module));
  NEED(cuFuncGetAttribute(&values[3], kCarveout, function));
  std::printf("%s: kernel %d, function %d, of the module %d; carveout %d\n", when, values[0],
              values[1], values[2], values[3]);
  for (const unsigned bytes : {45000u, 55000u, 65000u}) {
    std::printf("  %u bytes: %s %s %s, nodes %s %s, captured %s\n", bytes,
                error_name(launch(reinterpret_cast<CUfunction>(kernel), bytes)),
                error_name(launch(function, bytes)), error_name(launch(of_module, bytes)),
                error_name(add_node(bytes, true)), error_name(add_node(bytes, false)),
                error_name(capture(bytes)));
  }
}

}  // namespace

int main() {
  const CUcontext first = make_context();
  NEED(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  NEED(cuLibraryGetKernel(&kernel, library, "bump"));
  tell("at first");
  SHOW(cuKernelSetAttribute(kLimit, 70000, kernel, 0));
  SHOW(cuKernelSetAttribute(kCarveout, 30, kernel, 0));
  tell("70000 for the kernel");
  CUfunction function = nullptr;
  NEED(cuKernelGetFunction(&function, kernel));
  SHOW(cuFuncSetAttribute(function, kLimit, 50000));
  tell("50000 for the function");
  SHOW(cuKernelSetAttribute(kLimit, 60000, kernel, 0));
  tell("60000 for the kernel");
  SHOW(cuFuncSetAttribute(function, kLimit, 50000));
  SHOW(cuKernelSetAttribute(kLimit, 40000, kernel, 0));
  tell("40000 for the kernel");
  SHOW(cuFuncSetAttribute(function, kCarveout, 60));
  SHOW(cuKernelSetAttribute(kCarveout, 20, kernel, 0));
  tell("carveouts");

  CUcontext second = nullptr;
  NEED(cuCtxCreate_v2(&second, 0, 0));
  tell("another context");
  NEED(cuKernelGetFunction(&function, kernel));
  SHOW(cuFuncSetAttribute(function, kLimit, 60000));
  SHOW(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_SHARED));
  SHOW(cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  SHOW(cuCtxSynchronize());
  tell("60000 for the function of this context");
  NEED(cuCtxSetCurrent(first));
  tell("the first context");
  NEED(cuCtxDestroy(second));
  NEED(cuCtxCreate_v2(&second, 0, 0));
  tell("a third context");
  NEED(cuCtxDestroy(second));
  NEED(cuCtxSetCurrent(first));
  NEED(cuKernelGetFunction(&function, kernel));

  // Refused values change nothing.
  SHOW(cuFuncSetAttribute(function, kLimit, -1));
  SHOW(cuKernelSetAttribute(kLimit, 1 << 30, kernel, 0));
  tell("refused");
  SHOW(cuLibraryUnload(library));
  return 0;
}
