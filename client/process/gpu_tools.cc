#include "client/process/gpu_tools.h"

#include <cstdlib>

namespace fargpu::client {
namespace {

constexpr std::string_view kTimeline =
    "FARGPU_TRACE=calls.json writes a timeline of the program's CUDA calls for Perfetto";
constexpr std::string_view kChecks =
    "fargpu run --sim checks every access of kernels to memory on a simulated GPU";
constexpr std::string_view kDebugger = "gdb debugs the host code";

struct Tool {
  std::string_view program;
  std::string_view preloaded;  // part of the names of libraries that it preloads
  std::string_view instead;
};
// The first one that fits counts: compute-sanitizer preloads libraries of ncu's launcher, too.
constexpr Tool kTools[] = {
    {"compute-sanitizer", "libsanitizer-", kChecks},
    {"cuda-memcheck", "", kChecks},
    {"cuda-gdb", "", kDebugger},
    {"nsys", "libToolsInjection", kTimeline},
    {"ncu", "libTreeLauncher", kTimeline},
    {"nv-nsight-cu-cli", "", kTimeline},
    {"nvprof", "libcuda-injection", kTimeline},
};
constexpr std::string_view kAnother = "the tool of CUDA_INJECTION64_PATH";

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string gpu_tool_of_program(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const Tool& tool : kTools) {
    if (name == tool.program) return std::string(name);
  }
  return {};
}

std::string gpu_tool_of_environment() {
  const std::string_view injected = variable("CUDA_INJECTION64_PATH");
  for (const Tool& tool : kTools) {
    if (tool.preloaded.empty()) continue;
    for (const std::string_view libraries : {variable("LD_PRELOAD"), injected}) {
      if (libraries.find(tool.preloaded) != std::string_view::npos)
        return std::string(tool.program);
    }
  }
  return std::string(injected.empty() ? "" : kAnother);
}

std::string refusal_of_gpu_tool(std::string_view tool) {
  std::string_view instead = kTimeline;
  for (const Tool& known : kTools) {
    if (known.program == tool) instead = known.instead;
  }
  return std::string(tool) + " needs the GPU's driver on this machine and cannot be used here; " +
         std::string(instead) + " (docs/tools.md)";
}

}  // namespace fargpu::client
