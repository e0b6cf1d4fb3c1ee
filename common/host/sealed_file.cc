#include "common/host/sealed_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/fd.h"

namespace fargpu {
namespace {

constexpr mode_t kMode = 0400;
constexpr timespec kTime{0, 0};

// nullptr: it is sealed.
const char* what_is_not_kept(const struct stat& about) {
  if (!S_ISREG(about.st_mode) || (about.st_mode & 07777) != kMode) return "the mode 0400";
  if (about.st_uid != ::geteuid()) return "the owner";
  if (about.st_mtim.tv_sec != kTime.tv_sec || about.st_mtim.tv_nsec != kTime.tv_nsec)
    return "a time of modification of 0";
  return about.st_size > 0 ? nullptr : "the size";
}

}  // namespace

bool is_sealed(const struct stat& about) { return what_is_not_kept(about) == nullptr; }

Status seal_file(int descriptor, const std::string& folder) {
  const timespec times[2] = {{0, UTIME_NOW}, kTime};
  struct stat about {};
  if (::fchmod(descriptor, kMode) != 0 || ::futimens(descriptor, times) != 0 ||
      ::fstat(descriptor, &about) != 0)
    return system_error("cannot seal a file in " + folder, errno);
  const char* const lost = what_is_not_kept(about);
  if (lost == nullptr) return Status();
  return {StatusCode::kSystem,
          fmt::format("the file system of {} does not keep {} of a file", folder, lost)};
}

Status try_to_seal_in(const std::string& folder) {
  const std::string path = folder + "/seal";
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Status status;
  if (!file.valid() || ::write(file.get(), "x", 1) != 1)
    status = system_error("cannot write " + path, errno);
  else
    status = seal_file(file.get(), folder);
  if (file.valid()) ::unlink(path.c_str());
  return status;
}

}  // namespace fargpu
