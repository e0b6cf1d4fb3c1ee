// JSON, and reading it without exceptions: input from a file or another process is untrusted.
// Errors are kInvalidArgument and name the member.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace fargpu::bench {

// Members keep the order in which they were added.
using Json = nlohmann::ordered_json;

// `what` precedes the reason in the error.
Result<Json> parse_json(std::string_view text, const std::string& what);

// The member of an object: null when it is not there, or `object` is none.
const Json& member(const Json& object, const char* name);
Result<std::string> read_text(const Json& object, const char* name);
// At most `limit`.
Result<uint64_t> read_count(const Json& object, const char* name, uint64_t limit = UINT64_MAX);
// Finite, not negative.
Result<double> read_number(const Json& object, const char* name);
// A missing value, or one that is not a text: `otherwise`.
std::string text_or(const Json& object, const char* name, const std::string& otherwise);

// On one line. Invalid UTF-8 in texts is replaced.
std::string to_line(const Json& json);

}  // namespace fargpu::bench
