#include "client/cli/exit_codes.h"

#include <cstdio>

namespace fargpu::cli {

ExitCode exit_code(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kSuccess;
    case StatusCode::kInvalidArgument:
      return kUsage;
    case StatusCode::kProtocol:
    case StatusCode::kVersion:
      return kProtocolError;
    case StatusCode::kRefused:
      return kRefused;
    case StatusCode::kNoCapacity:
      return kNoCapacity;
    case StatusCode::kLost:
    case StatusCode::kTimeout:
      return kUnreachable;
    case StatusCode::kNotFound:
    case StatusCode::kDriver:
      return kMissingPart;
    case StatusCode::kSystem:
      return kSystemError;
    case StatusCode::kUnsupported:
      return kInternal;
  }
  return kInternal;
}

ExitCode start_exit_code(const Status& status) {
  return status.code() == StatusCode::kNotFound ? kCommandNotFound : kCannotExecute;
}

int fail(const Status& status) { return fail(exit_code(status), status.message()); }

int fail(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "fargpu: %s\n", message.c_str());
  return code;
}

}  // namespace fargpu::cli
