// SessionEnds: how the last sessions have ended, for their clients, which ask (SessionEnd of
// control.capnp). One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "server/handover/worker_messages.h"
#include "server/job/tenant_id.h"
#include "server/launch/launcher.h"

namespace fargpu::server {

// Why the daemon ends a session.
struct Cut {
  std::string why{};    // empty: it does not
  std::string limit{};  // of the configuration, by name; empty: none, it is the daemon's own end
};

// One line that tells apart: a limit, the daemon's end or drain, the worker's own end, a kill.
// `by_us`: the cut has ended the process.
std::string describe_end(const ProcessEnd& how, const Cut& cut, bool by_us, const LastWords& words);

class SessionEnds {
 public:
  void add(uint64_t session, const TenantId& tenant, std::string why);
  // None: that tenant had no such session, or too many have ended since.
  std::optional<std::string> find(uint64_t session, const TenantId& tenant) const;

 private:
  struct End {
    uint64_t session = 0;
    TenantId tenant;
    std::string why;
  };
  std::deque<End> ends_;
};

}  // namespace fargpu::server
