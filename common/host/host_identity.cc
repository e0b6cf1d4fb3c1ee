#include "common/host/host_identity.h"

#include <sys/stat.h>

#include <fstream>

namespace fargpu::bootstrap {

std::string host_identity() {
  // A program may change its root, where there may be no /proc, before it connects. Never
  // destroyed.
  static const std::string& known = []() -> const std::string& {
    auto& line = *new std::string;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, line);
    return line;
  }();
  return known;
}

uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace fargpu::bootstrap
