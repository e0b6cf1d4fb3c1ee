// NVIDIA's tools that look into the driver of the machine with the GPU: profilers, checkers,
// debuggers. From a client they would see nothing, or break the program, so they are refused by
// name, with a replacement. Pure functions but for the environment.
#pragma once

#include <string>
#include <string_view>

namespace fargpu::client {

// The name of such a tool; empty: `path` is a program of another kind.
std::string gpu_tool_of_program(std::string_view path);
// The tool that has started this process, by its traces in the environment (LD_PRELOAD,
// CUDA_INJECTION64_PATH); empty: none.
std::string gpu_tool_of_environment();
// One line: that the tool does not work here, and a replacement.
std::string refusal_of_gpu_tool(std::string_view tool);

}  // namespace fargpu::client
