// Environment variables as values. An unset or empty variable is the default; a malformed one is an
// error that names the variable. Reads getenv: call before other threads may change the
// environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace fargpu {

// nullopt when unset or empty.
std::optional<std::string> env_text(const char* name);
Result<bool> env_bool(const char* name, bool otherwise);
Result<uint64_t> env_integer(const char* name, uint64_t otherwise);
Result<uint64_t> env_bytes(const char* name, uint64_t otherwise);
Result<std::chrono::microseconds> env_duration(const char* name,
                                               std::chrono::microseconds otherwise);

}  // namespace fargpu
