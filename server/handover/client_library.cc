#include "server/handover/client_library.h"

#include <fstream>
#include <vector>

namespace fargpu::server {

bool is_fargpu_client(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  // The name of a variable that only our library reads. Put together here, so that this program
  // does not contain it whole.
  const std::string marker = std::string("FARGPU_") + "CONNECT_TIMEOUT";
  std::string window;
  std::vector<char> block(1u << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    window.append(block.data(), static_cast<size_t>(file.gcount()));
    if (window.find(marker) != std::string::npos) return true;
    window.erase(0, window.size() > marker.size() ? window.size() - marker.size() : 0);
  }
  return false;
}

}  // namespace fargpu::server
