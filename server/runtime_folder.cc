#include "server/runtime_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace fargpu::server {
namespace fs = std::filesystem;

Result<RuntimeFolder> RuntimeFolder::create(const std::string& parent) {
  std::string base = parent;
  for (const char* name : {"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"}) {
    const char* value = std::getenv(name);
    std::error_code error;
    if (base.empty() && value != nullptr && fs::is_directory(value, error)) base = value;
  }
  if (base.empty()) base = "/tmp";
  std::string pattern = base + "/fargpud-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    return system_error(fmt::format("cannot make a private folder in {} (--runtime-dir)", base), errno);
  }
  return RuntimeFolder(std::move(pattern));
}

RuntimeFolder::~RuntimeFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void RuntimeFolder::remove_uploads_of(int pid) const {
  const std::string prefix = fmt::format("upload-{}-", pid);
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) fs::remove(entry->path(), ignored);
  }
}

}  // namespace fargpu::server
