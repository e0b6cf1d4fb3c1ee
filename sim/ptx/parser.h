// PTX text to Module. Checks syntax, names of registers and labels, and sizes; the semantics of
// instructions are checked at lowering. Bounded: nesting, number of registers and initialiser sizes
// have limits, so that hostile text ends in an error.
#pragma once

#include <optional>
#include <string_view>

#include "sim/ptx/diagnostic.h"
#include "sim/ptx/module.h"

namespace fargpu::sim::ptx {

// nullopt and `error` on a text that is not PTX. The module's views point into `text`.
std::optional<Module> parse_module(std::string_view text, Diagnostic& error);

}  // namespace fargpu::sim::ptx
