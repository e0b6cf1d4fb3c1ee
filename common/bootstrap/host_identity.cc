#include "common/bootstrap/host_identity.h"

#include <fstream>

namespace fargpu::bootstrap {

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace fargpu::bootstrap
