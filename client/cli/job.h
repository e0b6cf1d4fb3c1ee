// The job of one `fargpu run`, which is one at each of its servers. It is opened before the program
// starts and held while the program runs.
//
// exec replaces this process with the program, so the connection that holds the job belongs to a
// companion (companion.h), the holder, which ends when the program ends. If the holder is killed,
// the job lives on while it has sessions.
#pragma once

#include <string>
#include <vector>

#include "client/cli/server_query.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::cli {

// Opens a job at each server of the environment for the program that this process becomes, and puts
// the tickets into FARGPU_JOB. All or none. The errors of open_job(); kSystem. Call while there is
// one thread, and only when can_become_the_program().
Status begin_job(const std::string& program, transport::Deadline deadline);

// For a program that runs as a child of this process: the same, but the connections are the
// caller's.
Result<std::vector<Fd>> begin_job_here(const std::string& program, transport::Deadline deadline);

// For a program that starts without asking the server: its first session makes the job.
Status begin_job_later();

}  // namespace fargpu::cli
