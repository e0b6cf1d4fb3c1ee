#include "server/handover/token.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace fargpu::server {

Status check_secret_file(const std::string& what, const std::string& path) {
  const auto wrong = [&](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{} {}: {}", what, path, why));
  };
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return wrong(std::strerror(errno));
  if (S_ISDIR(about.st_mode)) return wrong(std::strerror(EISDIR));
  if ((about.st_mode & S_IROTH) != 0) return wrong("everybody can read it; use `chmod 600`");
  if ((about.st_mode & S_IWOTH) != 0) return wrong("everybody can change it; use `chmod 600`");
  if ((about.st_mode & S_IWGRP) != 0) return wrong("its group can change it; use `chmod 640`");
  return Status();
}

Result<std::string> read_token_file(const std::string& path) {
  FARGPU_RETURN_IF_ERROR(check_secret_file("token file", path));
  const auto wrong = [&path](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, fmt::format("token file {}: {}", path, what));
  };
  std::ifstream file(path);
  if (!file) return wrong(std::strerror(errno));
  std::string line;
  if (!std::getline(file, line)) return wrong("it is empty");
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos) return wrong("its first line is empty");
  line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
  if (line.size() < 8)
    return wrong("the token has fewer than 8 characters; `openssl rand -hex 32` makes a good one");
  if (line.size() > 4096) return wrong("the token is longer than 4096 bytes");
  return line;
}

bool same_token(std::string_view expected, std::string_view given) {
  volatile unsigned char difference = expected.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const unsigned char other =
        expected.empty() ? 0 : static_cast<unsigned char>(expected[i % expected.size()]);
    difference = difference | (static_cast<unsigned char>(given[i]) ^ other);
  }
  return difference == 0;
}

}  // namespace fargpu::server
