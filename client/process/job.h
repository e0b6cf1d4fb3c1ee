// To which job this process belongs: that of FARGPU_JOB, which `fargpu run` sets, or one of its own
// that its children find there. Call while connecting.
#pragma once

#include <optional>

#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"

namespace fargpu::client {

// What FARGPU_JOB says. Without it a new ticket, which is put there for the children of this
// process; none when the process has several threads, because others may be reading the
// environment: then the process is a job by itself. kInvalidArgument: the variable makes no sense.
Result<std::optional<bootstrap::JobTicket>> job_of_this_process();

}  // namespace fargpu::client
