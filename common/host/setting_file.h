// Files that settings name, as they were when a library of ours was loaded: a program may give up
// the right to read them, or the folder where they lie, before its first call.
#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"

namespace fargpu {

// Keeps the text of an ordinary file for setting_file(); one that cannot be read now is left to
// that. While a library is loaded: no other thread uses this file's functions then.
void keep_setting_file(const std::string& path);

// The text that was kept, or that the file has now, which may be a pipe. kInvalidArgument, with the
// path and the reason: it cannot be read, or is larger than 4 MiB.
Result<std::string> setting_file(const std::string& path);

// The present contents of an ordinary file; nothing if it is none, cannot be read, or is larger.
std::optional<std::string> ordinary_file(const std::string& path);

}  // namespace fargpu
