// Exit codes of `fargpu`'s own failures (docs/errors.md); `fargpu run` otherwise ends as the
// application ended. The values follow sysexits.h where it has a fitting one, so that scripts can
// tell "try again later" from "change something".
#pragma once

#include "common/base/status.h"

namespace fargpu::cli {

enum ExitCode : int {
  kSuccess = 0,
  kNotSupported = 1,    // fargpu scan: something is not supported
  kSlower = 1,          // fargpu bench --compare: something is slower than before
  kUsage = 2,           // flag, argument or environment variable is wrong, or cannot be fulfilled
  kUnreachable = 69,    // no server answers, or the session was lost
  kInternal = 70,       // ours: please report
  kSystemError = 71,    // an operating system call failed, or a file cannot be read
  kMissingPart = 72,    // client library, daemon or driver not found
  kNoCapacity = 75,     // no GPU, memory or session slot left: try again later
  kProtocolError = 76,  // the server speaks another version, or no fargpu at all
  kRefused = 77,        // token refused, or the server's socket
  kBadConfig = 78,      // a file of results cannot be read
  kCannotExecute = 126,
  kCommandNotFound = 127,
};

// The code for a failed step.
ExitCode exit_code(const Status& status);

// The code of a shell for a program that cannot be started.
ExitCode start_exit_code(const Status& status);

// Prints "fargpu: <message>" on stderr and returns exit_code(status).
int fail(const Status& status);
int fail(ExitCode code, const std::string& message);

}  // namespace fargpu::cli
