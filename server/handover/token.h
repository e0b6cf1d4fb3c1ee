// The token that clients must present. Read from a file, so that it stands in no command line;
// compared in constant time.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace fargpu::server {

// The first line of the file, without surrounding blanks. kInvalidArgument: unreadable, empty,
// longer than 4096 bytes, or readable by everybody on this machine.
Result<std::string> read_token_file(const std::string& path);

// Takes the same time wherever the two differ (it does depend on the length of `given`).
bool same_token(std::string_view expected, std::string_view given);

}  // namespace fargpu::server
