// The data of a name: a function of the driver, or one of CUDA's runtime library that needs one.
// Constant tables; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "generated/schema/support_table.h"

namespace fargpu::scan {

// nullptr: the driver has no such symbol; no function may be asked for by this name.
const schema::Support* find_symbol(std::string_view symbol);
const schema::Support* find_name(std::string_view name);
// How many names there are to ask for.
size_t names_to_ask_for();

// Functions of the runtime library that hand their work to one function of the driver. Nothing is
// here that is not certain.
struct RuntimeNeed {
  std::string_view function, needs;
};
std::span<const RuntimeNeed> runtime_needs();
// The driver function that a function of the runtime library needs. Empty: it is not known.
std::string_view needed_by_runtime(std::string_view function);

// Whether this function finds functions of the driver by their names.
bool looks_up_names(std::string_view function);

}  // namespace fargpu::scan
