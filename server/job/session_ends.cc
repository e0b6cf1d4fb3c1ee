#include "server/job/session_ends.h"

#include <fmt/core.h>
#include <signal.h>

#include <utility>

namespace fargpu::server {

std::string describe_end(const ProcessEnd& how, const Cut& cut, bool by_us,
                         const LastWords& words) {
  const bool cut_by_us = by_us && !cut.why.empty();
  const std::string& limit = cut_by_us ? cut.limit : words.limit;
  const std::string& why = cut_by_us ? cut.why : words.reason;
  if (!limit.empty()) return fmt::format("a limit of the server has ended it, {}: {}", limit, why);
  if (cut_by_us) return "the server has ended it: " + why;
  if (!why.empty()) return "its worker has ended: " + why;
  std::string killed = "its worker " + how.describe();
  if (how.signal == SIGKILL) killed += ", as the system does when it is out of memory";
  return killed;
}

void SessionEnds::add(uint64_t session, const TenantId& tenant, std::string why) {
  constexpr size_t kMost = 1024;
  if (ends_.size() == kMost) ends_.pop_front();
  ends_.push_back({session, tenant, std::move(why)});
}

std::optional<std::string> SessionEnds::find(uint64_t session, const TenantId& tenant) const {
  for (const End& end : ends_)
    if (end.session == session && end.tenant == tenant) return end.why;
  return std::nullopt;
}

}  // namespace fargpu::server
