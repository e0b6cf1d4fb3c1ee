#include "server/daemon/runtime_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/log.h"

namespace fargpu::server {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "fargpud-";
constexpr size_t kNameLength = 8 + 6;  // with what mkdtemp adds
constexpr const char* kLock = "lock";

// Locked before it gets its name: another daemon would remove an unlocked folder.
Result<Fd> make_lock(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kLock), part = fmt::format("{}.part", path);
  Fd file(::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::rename(part.c_str(), path.c_str()) != 0) {
    return system_error("cannot lock " + folder, errno);
  }
  return file;
}

bool is_abandoned(const std::string& folder) {
  const Fd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  // Another user's folder may be a trap: not ours to look into.
  if (!directory.valid() || ::fstat(directory.get(), &about) != 0 || about.st_uid != ::geteuid())
    return false;
  const Fd lock(::openat(directory.get(), kLock, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  return lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

Result<RuntimeFolder> RuntimeFolder::create(const std::string& parent) {
  std::string base = parent;
  for (const char* name : {"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"}) {
    const char* value = std::getenv(name);
    std::error_code error;
    if (base.empty() && value != nullptr && fs::is_directory(value, error)) base = value;
  }
  if (base.empty()) base = "/tmp";
  remove_abandoned(base);
  std::string pattern = fmt::format("{}/{}XXXXXX", base, kPrefix);
  if (::mkdtemp(pattern.data()) == nullptr) {
    return system_error(fmt::format("cannot make a private folder in {} (--runtime-dir)", base),
                        errno);
  }
  RuntimeFolder folder(std::move(pattern), Fd());  // removes it when what follows fails
  FARGPU_ASSIGN_OR_RETURN(folder.lock_, make_lock(folder.path_));
  if (::mkdir(folder.images().c_str(), 0700) != 0)
    return system_error("cannot make " + folder.images(), errno);
  return folder;
}

RuntimeFolder::~RuntimeFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

size_t RuntimeFolder::remove_abandoned(const std::string& base) {
  std::vector<std::string> abandoned;
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() == kNameLength && name.starts_with(kPrefix) &&
        is_abandoned(entry->path().string())) {
      abandoned.push_back(entry->path().string());
    }
  }
  size_t removed = 0;
  for (const std::string& path : abandoned) {
    std::error_code failed;
    fs::remove_all(path, failed);
    if (failed) {
      log::warn("event=folder-kept path={} why=\"{}\"", path, failed.message());
    } else {
      ++removed;
      log::info("event=folder-removed path={} why=\"its daemon is dead\"", path);
    }
  }
  return removed;
}

}  // namespace fargpu::server
