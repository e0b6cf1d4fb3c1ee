#include "server/worker_options.h"

#include <fmt/format.h>

namespace fargpu::server {

std::vector<std::string> WorkerOptions::to_arguments() const {
  return {
      fmt::format("--session={}", session),
      fmt::format("--parent={}", parent),
      fmt::format("--driver={}", driver),
      fmt::format("--memory={}", memory_bytes),
      fmt::format("--image-folder={}", image_folder),
      fmt::format("--image-cache={}", image_cache_bytes),
      fmt::format("--max-frame={}", limits.max_body_bytes),
      fmt::format("--max-bulk={}", limits.max_bulk_bytes),
      fmt::format("--client-max-frame={}", client_limits.max_body_bytes),
      fmt::format("--client-max-bulk={}", client_limits.max_bulk_bytes),
      fmt::format("--hello-sequence={}", hello_sequence),
      fmt::format("--client={}", client),
  };
}

}  // namespace fargpu::server
