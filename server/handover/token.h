// The token that clients must present. Read from a file, so that it stands in no command line;
// compared in constant time.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace fargpu::server {

// Of a file with a secret, which is called `what` in the error: kInvalidArgument when it is not
// there, or others can read or change it. Its group may read it.
Status check_secret_file(const std::string& what, const std::string& path);

// The first line of the file, without surrounding blanks. kInvalidArgument: unreadable, empty,
// shorter than 8 bytes or longer than 4096, or not a secret.
Result<std::string> read_token_file(const std::string& path);

// Takes the same time wherever the two differ (it does depend on the length of `given`).
bool same_token(std::string_view expected, std::string_view given);

}  // namespace fargpu::server
