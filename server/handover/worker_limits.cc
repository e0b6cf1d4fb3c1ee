#include "server/handover/worker_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/base/log.h"

namespace fargpu::server {
namespace {

// Lowers or raises `what` to `wanted`, within the hard limit.
void limit(__rlimit_resource what, const char* name, rlim_t wanted) {
  rlimit now{};
  if (::getrlimit(what, &now) != 0) return;
  const rlim_t value = std::min(wanted, now.rlim_max);
  const rlimit next{value, value};
  if (::setrlimit(what, &next) != 0) {
    log::warn("event=limit-not-set limit={} value={} why=\"{}\"", name, value,
              std::strerror(errno));
  }
}

}  // namespace

void apply(const WorkerLimits& limits) {
  limit(RLIMIT_NOFILE, "open-files", limits.open_files);
  // 1 rather than 0: a core pattern that is a pipe ignores 0, and takes 1 for "none". A file is not
  // begun for less than a page.
  if (!limits.core_dumps) limit(RLIMIT_CORE, "core-dumps", 1);

  constexpr const char* kScore = "/proc/self/oom_score_adj";
  int inherited = 0;
  if (!(std::ifstream(kScore) >> inherited)) return;
  const int wanted = std::max(inherited, static_cast<int>(std::min(limits.oom_score, 1000u)));
  if (wanted == inherited) return;
  std::ofstream file(kScore);
  file << wanted << std::flush;
  if (!file)
    log::warn("event=limit-not-set limit=oom-score value={} why=\"{}\"", wanted,
              std::strerror(errno));
}

}  // namespace fargpu::server
