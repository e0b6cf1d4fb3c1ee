#include "common/base/since_load.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/keep_errno.h"

namespace fargpu {
namespace {

struct Remembered {
  bool known = false;
  struct stat root {};
  uid_t user = 0;
  gid_t group = 0;
};
constinit Remembered at_load;

bool user_has_changed() {
  return at_load.known && (::geteuid() != at_load.user || ::getegid() != at_load.group);
}

}  // namespace

void remember_process() {
  const KeepErrno keep;
  at_load.user = ::geteuid();
  at_load.group = ::getegid();
  at_load.known = ::stat("/", &at_load.root) == 0;
}

bool root_has_changed() {
  const KeepErrno keep;
  struct stat now {};
  if (!at_load.known || ::stat("/", &now) != 0) return at_load.known;
  return now.st_dev != at_load.root.st_dev || now.st_ino != at_load.root.st_ino;
}

std::string explanation(int error_number) {
  const bool denied = error_number == EACCES || error_number == EPERM;
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  if ((denied || missing) && root_has_changed())
    return " (the program has changed its root directory since it loaded fargpu)";
  if (denied && user_has_changed())
    return " (the program has changed its user or group since it loaded fargpu)";
  return {};
}

}  // namespace fargpu
