#include "common/bootstrap/host_identity.h"

#include <sys/stat.h>

#include <fstream>

namespace fargpu::bootstrap {

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace fargpu::bootstrap
