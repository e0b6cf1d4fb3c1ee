// The daemon's private folder (mode 0700), for what its workers share. Removed with the object.
#pragma once

#include <string>

#include "common/base/status.h"

namespace fargpu::server {

class RuntimeFolder {
 public:
  // A new folder in `parent`, or, when that is empty, in RUNTIME_DIRECTORY, XDG_RUNTIME_DIR or /tmp.
  static Result<RuntimeFolder> create(const std::string& parent);
  RuntimeFolder(RuntimeFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  RuntimeFolder& operator=(RuntimeFolder&&) = delete;
  ~RuntimeFolder();

  const std::string& path() const { return path_; }
  // An unfinished upload of a worker that died.
  void remove_uploads_of(int pid) const;

 private:
  explicit RuntimeFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace fargpu::server
