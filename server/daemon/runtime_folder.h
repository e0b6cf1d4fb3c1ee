// The daemon's private folder (mode 0700), for files that workers of older releases share. Removed
// with the object.
//
// The daemon holds a lock in it until its process ends. A folder whose lock is free was left by a
// daemon that was killed; the next daemon that starts with the same runtime-dir removes it.
#pragma once

#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

class RuntimeFolder {
 public:
  // A new folder in `parent`, or, when that is empty, in RUNTIME_DIRECTORY, XDG_RUNTIME_DIR or
  // /tmp. Removes abandoned ones there.
  static Result<RuntimeFolder> create(const std::string& parent);
  RuntimeFolder(RuntimeFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  RuntimeFolder& operator=(RuntimeFolder&&) = delete;
  ~RuntimeFolder();

  const std::string& path() const { return path_; }
  // Where workers of older releases keep images; those of this one neither write nor read it.
  std::string images() const { return path_ + "/images"; }

  // Removes the folders of this user in `base` whose daemon is dead; how many. One that is locked,
  // or has no lock (yet), stays.
  static size_t remove_abandoned(const std::string& base);

 private:
  RuntimeFolder(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  Fd lock_;
};

}  // namespace fargpu::server
