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

Status::Status(StatusCode code, std::string message) {
  if (code != StatusCode::kOk) failure_ = new Failure{code, std::move(message)};
}

const std::string& Status::message() const {
  static const auto* const none = new std::string;  // for exit handlers, too
  return ok() ? *none : failure_->message;
}

void Status::let_go() {
  // NOLINTBEGIN(clang-analyzer-cplusplus.NewDelete): the count is not seen by the analyzer
  // Release for the other holders' last looks, acquire for all of them before the deletion.
  if (failure_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete failure_;
  // NOLINTEND(clang-analyzer-cplusplus.NewDelete)
}

Status system_error(std::string what, int error_number) {
  what += ": ";
  what += std::generic_category().message(error_number);  // thread safe, unlike strerror
  return Status(StatusCode::kSystem, std::move(what));
}

}  // namespace fargpu
