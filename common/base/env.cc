#include "common/base/env.h"

#include <cstdlib>

#include "common/base/parse.h"

namespace fargpu {
namespace {

template <typename T>
Result<T> parsed(const char* name, T otherwise, Result<T> (*parse)(std::string_view)) {
  auto text = env_text(name);
  if (!text) return otherwise;
  Result<T> value = parse(*text);
  if (value.ok()) return value;
  const Status status = value.status();
  return Status(status.code(),
                std::string("environment variable ") + name + ": " + status.message());
}

}  // namespace

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<bool> env_bool(const char* name, bool otherwise) {
  return parsed<bool>(name, otherwise, parse_bool);
}

Result<uint64_t> env_integer(const char* name, uint64_t otherwise) {
  return parsed<uint64_t>(name, otherwise, parse_integer);
}

Result<uint64_t> env_bytes(const char* name, uint64_t otherwise) {
  return parsed<uint64_t>(name, otherwise, parse_bytes);
}

Result<std::chrono::microseconds> env_duration(const char* name,
                                               std::chrono::microseconds otherwise) {
  return parsed<std::chrono::microseconds>(name, otherwise, parse_duration);
}

}  // namespace fargpu
