#include "common/base/env.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include "common/base/kept_environment.h"
#include "common/base/parse.h"

namespace fargpu {
namespace {

constexpr std::string_view kOwn = "FARGPU_";
std::atomic<const OwnVariables*> kept{nullptr};

constexpr size_t kMostOfTheStart = size_t{1} << 20;

// The first of a name counts, as in getenv.
void add_own(std::string_view text, OwnVariables* variables) {
  const size_t end = text.find('=');
  if (end == std::string_view::npos || !text.starts_with(kOwn)) return;
  variables->emplace(text.substr(0, end), text.substr(end + 1));
}

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

OwnVariables own_variables_now() {
  OwnVariables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    add_own(*entry, &variables);
  return variables;
}

OwnVariables own_variables_of_the_start() {
  OwnVariables variables;
  // A program with rights of its own may have cleared what its caller gave it.
  if (::getauxval(AT_SECURE) != 0) return variables;
  std::ifstream file("/proc/self/environ", std::ios::binary);
  std::string text(kMostOfTheStart, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    add_own(std::string_view(text).substr(begin, end - begin), &variables);
    begin = end + 1;
  }
  return variables;
}

// Never destroyed: calls come until the very end of the process.
void keep_own_variables(OwnVariables variables) {
  kept.store(new OwnVariables(std::move(variables)), std::memory_order_release);
}

std::optional<std::string> env_text_now(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::string> env_text(const char* name) {
  const OwnVariables* const own = kept.load(std::memory_order_acquire);
  if (own == nullptr || !std::string_view(name).starts_with(kOwn)) return env_text_now(name);
  const auto found = own->find(name);
  if (found == own->end() || found->second.empty()) return std::nullopt;
  return found->second;
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
