// The job of one `fargpu run`, which is one at each of its servers. It is opened before the program
// starts and held while the program runs.
//
// exec replaces this process with the program, so the connection that holds the job belongs to a
// small process beside it, the holder. The holder is not the program's child, is in no terminal and
// no process group of the program, has none of its files open, and ends when the program ends. If
// somebody kills the holder, the job lives on while it has sessions.
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

// Not where orphans become children of this process (the first of a container is the usual case):
// the holder would be a child of the program, which might wait for it for ever. Nor where the
// system has no pidfd_open(), or forbids it: the holder could not notice the program's end.
bool can_become_the_program();

// For a program that runs as a child of this process: the same, but the connections are the
// caller's.
Result<std::vector<Fd>> begin_job_here(const std::string& program, transport::Deadline deadline);

// For a program that starts without asking the server: its first session makes the job.
Status begin_job_later();

}  // namespace fargpu::cli
