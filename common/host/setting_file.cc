#include "common/host/setting_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "common/base/descriptors.h"
#include "common/base/since_load.h"

namespace fargpu {
namespace {

constexpr size_t kMostBytes = 4u << 20;

// By path. Never destroyed: calls come until the very end of the process.
std::map<std::string, std::string, std::less<>>& kept() {
  static auto* const texts = new std::map<std::string, std::string, std::less<>>;
  return *texts;
}

// 0 and all of the text, or an error number.
int read_all(const Fd& file, std::string& text) {
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got == 0) return 0;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > kMostBytes) return EFBIG;
  }
}

Status cannot_read(const std::string& path, int error) {
  return {StatusCode::kInvalidArgument,
          fmt::format("cannot read {}: {}{}", path, std::strerror(error), explanation(error))};
}

}  // namespace

std::optional<std::string> ordinary_file(const std::string& path) {
  const Fd file = descriptors::open_file(path.c_str(), O_RDONLY | O_NONBLOCK);
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  std::string text;
  if (read_all(file, text) != 0) return {};
  return text;
}

void keep_setting_file(const std::string& path) {
  if (auto text = ordinary_file(path)) kept()[path] = std::move(*text);
}

Result<std::string> setting_file(const std::string& path) {
  if (const auto found = kept().find(path); found != kept().end()) return found->second;
  const Fd file = descriptors::open_file(path.c_str(), O_RDONLY);
  if (!file.valid()) return cannot_read(path, errno);
  std::string text;
  if (const int error = read_all(file, text); error != 0) return cannot_read(path, error);
  return text;
}

}  // namespace fargpu
