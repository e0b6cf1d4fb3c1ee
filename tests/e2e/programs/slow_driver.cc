// A driver in front of the simulated one, whose cuInit a test can hold and have fail, by files in
// the folder FARGPU_TEST_DRIVER_FOLDER: it notes that it was called (a file PID), waits while there
// is `hold`, and then fails if there is `fail`. If there is `only`, it does so in processes whose
// CUDA_VISIBLE_DEVICES is the text in it. While there is `refuse` it takes no change of a graph's
// kernel.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

// The simulated driver's.
template <typename Function>
Function* next_of(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool has(const char* file) {
  const char* const folder = std::getenv("FARGPU_TEST_DRIVER_FOLDER");
  return folder != nullptr && std::filesystem::exists(std::filesystem::path(folder) / file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuInit(unsigned flags) {
  static const auto next = next_of("cuInit", &cuInit);
  if (const char* name = std::getenv("FARGPU_TEST_DRIVER_FOLDER")) {
    const std::filesystem::path folder = name;
    std::ofstream(folder / std::to_string(::getpid())).close();
    std::string only;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (std::ifstream(folder / "only") >> only && (visible == nullptr || only != visible))
      return next != nullptr ? next(flags) : CUDA_ERROR_NOT_INITIALIZED;
    while (has("hold")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (has("fail")) return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  return next != nullptr ? next(flags) : CUDA_ERROR_NOT_INITIALIZED;
}

extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI
cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                  const CUDA_KERNEL_NODE_PARAMS* params) {
  static const auto next =
      next_of("cuGraphExecKernelNodeSetParams_v2", &cuGraphExecKernelNodeSetParams_v2);
  return has("refuse") ? CUDA_ERROR_NOT_PERMITTED : next(exec, node, params);
}
