#include "client/process/job.h"

#include <sys/single_threaded.h>

#include <cstdlib>

#include "common/base/env.h"

namespace fargpu::client {

Result<std::optional<bootstrap::JobTicket>> job_of_this_process() {
  using Ticket = std::optional<bootstrap::JobTicket>;
  if (const auto text = env_text(bootstrap::kJobVariable)) {
    auto ticket = bootstrap::parse_ticket(*text);
    if (ticket.ok()) return Ticket(*ticket);
    return Status(ticket.status().code(),
                  std::string(bootstrap::kJobVariable) + ": " + ticket.status().message());
  }
  // Of glibc: true only when there is certainly no other thread.
  if (!__libc_single_threaded) return Ticket();
  FARGPU_ASSIGN_OR_RETURN(const bootstrap::JobTicket own, bootstrap::make_ticket());
  if (::setenv(bootstrap::kJobVariable, bootstrap::to_text(own).c_str(), 1) != 0) return Ticket();
  return Ticket(own);
}

}  // namespace fargpu::client
