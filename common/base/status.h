// Status and Result: how fargpu's own layers report failure. No exceptions cross a layer boundary.
//
// Status carries a code for programs and one line for people: the event, with the values, and a
// remedy where possible. A peer's mistake is a Status; a mistake of ours is FARGPU_CHECK (check.h).
// An ok Status is a null pointer: nearly every call of the hot path returns one. Copies share the
// text, so returning a known failure needs no heap memory. Thread rules: plain values; copies may
// be in different threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace fargpu {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong (flag, config, environment)
  kProtocol,         // the peer broke the wire format; its session ends
  kVersion,          // the peer speaks another protocol version
  kRefused,          // authentication or admission said no
  kNoCapacity,       // no GPU, memory, session slot left
  kLost,             // the session's connection is gone
  kTimeout,          // a deadline passed
  kNotFound,         // file, library, symbol, device not there
  kUnsupported,      // known, but not implemented
  kSystem,           // an operating system call failed (message holds errno's text)
  kDriver,           // the GPU driver returned an error
};

// "lost", "timeout" ...: for logs and tests.
const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);  // kOk: the message is dropped
  Status(const Status& other) : failure_(other.failure_) {
    if (failure_ != nullptr) failure_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Status(Status&& other) noexcept : failure_(std::exchange(other.failure_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(failure_, other.failure_);
    return *this;
  }
  ~Status() {
    if (failure_ != nullptr) [[unlikely]]
      let_go();
  }
  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  const std::string& message() const;  // empty when ok

 private:
  struct Failure {
    const StatusCode code;
    const std::string message;
    std::atomic<size_t> holders{1};
  };
  void let_go();

  Failure* failure_ = nullptr;
};

// kSystem with `what` and the text of `error_number`.
Status system_error(std::string what, int error_number);

// A value or the Status that says why there is none. value() on an error is a programming mistake
// (aborts). Not a std::variant: that costs a visit wherever one is moved or destroyed, even of two
// trivial things.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  T& value() {
    if (!ok()) [[unlikely]]
      std::abort();
    return *value_;
  }
  const T& value() const { return const_cast<Result*>(this)->value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Status status() const { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define FARGPU_CONCAT_(a, b) a##b
#define FARGPU_CONCAT(a, b) FARGPU_CONCAT_(a, b)

// Returns from the enclosing function when `expr` (a Status) is not ok.
#define FARGPU_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::fargpu::Status fargpu_status_ = (expr); !fargpu_status_.ok()) return fargpu_status_; \
  } while (0)

// FARGPU_ASSIGN_OR_RETURN(auto x, f()): x = value of the Result, or return its Status.
#define FARGPU_ASSIGN_OR_RETURN(lhs, expr)                   \
  auto FARGPU_CONCAT(fargpu_result_, __LINE__) = (expr);     \
  if (!FARGPU_CONCAT(fargpu_result_, __LINE__).ok())         \
    return FARGPU_CONCAT(fargpu_result_, __LINE__).status(); \
  lhs = std::move(*FARGPU_CONCAT(fargpu_result_, __LINE__))

}  // namespace fargpu
