// A driver in front of the simulated one, whose cuInit a test can hold and have fail, by files in
// the folder FARGPU_TEST_DRIVER_FOLDER: it notes that it was called (a file PID), waits while there
// is `hold`, and then fails if there is `fail`. If there is `only`, it does so in processes whose
// CUDA_VISIBLE_DEVICES is the text in it.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI cuInit(unsigned flags) {
  static const auto next = reinterpret_cast<CUresult(CUDAAPI*)(unsigned)>(  // the simulated one's
      ::dlsym(RTLD_NEXT, "cuInit"));
  if (const char* name = std::getenv("FARGPU_TEST_DRIVER_FOLDER")) {
    const std::filesystem::path folder = name;
    std::ofstream(folder / std::to_string(::getpid())).close();
    std::string only;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (std::ifstream(folder / "only") >> only && (visible == nullptr || only != visible))
      return next != nullptr ? next(flags) : CUDA_ERROR_NOT_INITIALIZED;
    while (std::filesystem::exists(folder / "hold"))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (std::filesystem::exists(folder / "fail")) return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  return next != nullptr ? next(flags) : CUDA_ERROR_NOT_INITIALIZED;
}
