#include "common/base/status.h"

#include <system_error>

namespace fargpu {

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kProtocol:
      return "protocol";
    case StatusCode::kVersion:
      return "version";
    case StatusCode::kRefused:
      return "refused";
    case StatusCode::kNoCapacity:
      return "no capacity";
    case StatusCode::kLost:
      return "lost";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kSystem:
      return "system";
    case StatusCode::kDriver:
      return "driver";
  }
  return "unknown";
}

Status system_error(std::string what, int error_number) {
  what += ": ";
  what += std::generic_category().message(error_number);  // thread safe, unlike strerror
  return Status(StatusCode::kSystem, std::move(what));
}

}  // namespace fargpu
