// The job of one `fargpu run`: opened before the program starts, and held for as long as the
// program runs.
//
// The program takes this process over (exec), so the connection that holds the job is kept by a
// small process beside it, the holder. It belongs to no terminal and no process group of the
// program, has none of its files open, is not its child, and ends with it. When the holder is ended
// from outside, the job lives on while it has sessions.
#pragma once

#include <string>

#include "client/cli/server_query.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::cli {

// Opens a job at the server of the environment for the program that this process becomes, and puts
// its ticket into FARGPU_JOB. The errors of open_job(); kSystem. Call while there is one thread,
// and only when can_become_the_program().
Status begin_job(const std::string& program, transport::Deadline deadline);

// Not where orphans become children of this process (the first of a container is the usual case):
// the holder would be a child of the program, which might wait for it for ever. Nor where the
// system has no pidfd_open(), or forbids it: the holder could not notice the program's end.
bool can_become_the_program();

// For a program that runs as a child of this process: the same, but the connection is the caller's.
Result<Fd> begin_job_here(const std::string& program, transport::Deadline deadline);

// For a program that starts without asking the server: its first session makes the job.
Status begin_job_later();

}  // namespace fargpu::cli
