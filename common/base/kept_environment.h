// The environment as it was at a moment. A library in a foreign program takes its settings when it
// is loaded; the program may change or clear its environment afterwards.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace fargpu {

// FARGPU_* variables by name.
using OwnVariables = std::map<std::string, std::string, std::less<>>;

OwnVariables own_variables_now();
// The variables of the process's start, although it has cleared its environment since. Empty, too,
// where /proc does not tell (after a change of the user, or of the root directory), and in a
// program that has rights of its own, as a set-user-ID one.
OwnVariables own_variables_of_the_start();
// From now on the functions of env.h know these FARGPU_* variables and no others. Once, early;
// other variables are always read from the environment.
void keep_own_variables(OwnVariables variables);
// As env_text(), of the environment alone.
std::optional<std::string> env_text_now(const char* name);

}  // namespace fargpu
