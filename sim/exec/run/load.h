// From PTX to programs that run.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "sim/exec/engine.h"

namespace fargpu::sim {

// Parses and checks one PTX module and places its variables in `memory` (released with the
// Program). Every instruction is checked here: an unknown instruction is refused with its name and
// line. `memory` outlives the Program.
struct LoadResult {
  std::unique_ptr<Program> program;  // null on error
  LoadError error;
};
LoadResult load_ptx(std::string_view text, MemoryMap& memory, const EngineOptions& options);

// Several PTX texts linked into one module (cuLink*): .extern symbols of one are resolved by
// .visible ones of another.
LoadResult load_ptx_linked(std::span<const std::string_view> texts, MemoryMap& memory,
                           const EngineOptions& options);

// For the test that lists instruction forms ("ld.global.v4.u32"): executed, refused by name (mma,
// wmma, textures ...), or unknown.
enum class FormSupport { kExecuted, kRefused, kUnknown };
FormSupport form_support(std::string_view form);

}  // namespace fargpu::sim
