#include "server/handover/worker_options.h"

#include <fmt/core.h>

#include <sstream>

namespace fargpu::server {

std::vector<std::string> WorkerOptions::to_arguments() const {
  std::string ranges;
  for (const PriorityRange& range : priorities) {
    ranges += fmt::format("{}{}:{}", ranges.empty() ? "" : ",", range.least, range.greatest);
  }
  return {
      fmt::format("--session={}", session),
      fmt::format("--job={}", job),
      fmt::format("--job-slot={}", job_slot),
      fmt::format("--job-slots={}", job_slots),
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
      fmt::format("--priorities={}", ranges),
      fmt::format("--client={}", client.empty() ? "?" : client),
      fmt::format("--transports={}", bootstrap::join(transports)),
      fmt::format("--allowed={}", bootstrap::join(allowed)),
      fmt::format("--same-host={}", same_host ? 1 : 0),
      // Not empty: the flag would take the next one for its value.
      fmt::format("--encrypted-peer={}", encrypted_peer.empty() ? "none" : encrypted_peer),
      fmt::format("--connections={}", connections),
      fmt::format("--open-files={}", host_limits.open_files),
      fmt::format("--oom-score={}", host_limits.oom_score),
      fmt::format("--core-dumps={}", host_limits.core_dumps ? 1 : 0),
  };
}

std::vector<PriorityRange> parse_priorities(const std::string& text) {
  std::vector<PriorityRange> ranges;
  std::istringstream list(text);
  PriorityRange range;
  for (char colon = 0, comma = 0; list >> range.least >> colon >> range.greatest; list >> comma)
    ranges.push_back(range);
  return ranges;
}

}  // namespace fargpu::server
