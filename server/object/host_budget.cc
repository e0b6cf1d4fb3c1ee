#include "server/object/host_budget.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "common/base/log.h"

namespace fargpu::server {

uint64_t HostBudget::usual_limit() {
  const auto pages = static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
  uint64_t most = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  // "0::/path" of version 2; its limit may be "max".
  std::string line, folder = "/sys/fs/cgroup";
  for (std::ifstream groups("/proc/self/cgroup"); std::getline(groups, line);)
    if (line.starts_with("0::/")) folder += line.substr(3);
  uint64_t limit = 0;
  if (std::ifstream(folder + "/memory.max") >> limit) most = std::min(most, limit);
  return most / 2;
}

void HostBudget::refuse(uint64_t bytes) {
  if (refused_.exchange(true, std::memory_order_relaxed)) return;
  log::warn("event=host-memory-refused bytes={} used={} limit={} why=host-memory-per-session",
            bytes, used(), limit_);
}

}  // namespace fargpu::server
