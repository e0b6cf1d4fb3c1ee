// Telling NVIDIA's libraries from fargpu's, which have the same names.
#pragma once

#include <string>

namespace fargpu::server {

// Whether the file is one of fargpu's client libraries. False also for unreadable files.
bool is_fargpu_client(const std::string& path);

}  // namespace fargpu::server
