// Runs one child process in place of this one: all signals that this process receives are passed to
// the child, except SIGKILL and SIGSTOP, which no process can catch. When the child stops, this
// process stops, and its end status becomes ours. Call it while there is one thread: it blocks
// signals for the whole process and waits for them.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::cli {

// How a child ended: its exit code, or the signal that ended it.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it exited
};

// The treatment of adopted children, which this process did not start.
enum class Orphans { kLeave, kReap };

// Starts `arguments[0]` (a path) and waits for its end. A terminal's own signals (Ctrl-C) reach the
// child directly, as part of the foreground group, and are not sent twice. kNotFound or kSystem
// when it could not be started.
Result<ChildEnd> supervise(const std::string& program, const std::vector<std::string>& arguments,
                           Orphans orphans = Orphans::kLeave);

// Ends this process as the child ended: same exit code, or the same signal (so a shell sees 128 +
// n). Writes no core file.
[[noreturn]] void end_like(const ChildEnd& end);

// Replaces this process by the program. Returns only on failure.
Status execute(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace fargpu::cli
