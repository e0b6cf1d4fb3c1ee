// To which jobs this process belongs, one per server: the jobs of FARGPU_JOB, which `fargpu run`
// sets, or jobs of its own, which it puts there for its children. Call while connecting.
#pragma once

#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"

namespace fargpu::client {

// The jobs of FARGPU_JOB, in the order of the servers. Without it new tickets, which are put there
// for the children of this process; none when the process has several threads, because others may
// be reading the environment: then the process is a job by itself at each server. kInvalidArgument:
// the variable makes no sense, or is for another number of servers.
Result<std::vector<bootstrap::JobTicket>> jobs_of_this_process(size_t servers);

}  // namespace fargpu::client
