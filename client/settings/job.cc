#include "client/settings/job.h"

#include <fmt/core.h>
#include <sys/single_threaded.h>

#include <cstdlib>

#include "common/base/env.h"
#include "common/base/kept_environment.h"

namespace fargpu::client {

Result<std::vector<bootstrap::JobTicket>> jobs_of_this_process(size_t servers) {
  using Tickets = std::vector<bootstrap::JobTicket>;
  // The other of our two libraries may have put it there since this one was loaded.
  auto text = env_text_now(bootstrap::kJobVariable);
  if (!text) text = env_text(bootstrap::kJobVariable);
  if (text) {
    auto tickets = bootstrap::parse_tickets(*text);
    if (!tickets.ok()) {
      return Status(tickets.status().code(),
                    std::string(bootstrap::kJobVariable) + ": " + tickets.status().message());
    }
    if (tickets->size() != servers) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is for {} servers, FARGPU_SERVER names {}; unset it, or start "
                                "the program with `fargpu run`",
                                bootstrap::kJobVariable, tickets->size(), servers));
    }
    return tickets;
  }
  // Of glibc: true only when there is certainly no other thread.
  if (!__libc_single_threaded) return Tickets();
  Tickets own;
  for (size_t i = 0; i < servers; ++i) {
    FARGPU_ASSIGN_OR_RETURN(const bootstrap::JobTicket ticket, bootstrap::make_ticket());
    own.push_back(ticket);
  }
  if (::setenv(bootstrap::kJobVariable, bootstrap::to_text(own).c_str(), 1) != 0) return Tickets();
  return own;
}

}  // namespace fargpu::client
