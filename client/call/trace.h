// Trace of the application's calls: what was called with which arguments, what came back, how long
// it took.
//
// FARGPU_TRACE=1 writes lines to stderr, FARGPU_TRACE=/a/path appends them to a file; a path that
// ends in .json is written as a Chrome trace (chrome://tracing, Perfetto), to which client/timeline
// adds what happened on the wire and in the workers. The report (report.h) counts calls by the same
// means. Both off: one relaxed load per call. Thread safe; a line is written whole. Used by
// generated entries.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/rpc/link_times.h"
#include "common/rpc/thread_calls.h"

namespace fargpu::client::trace {

// One printed value. Texts are read while the call is on the stack.
struct Value {
  enum class Type { kUnsigned, kSigned, kFloat, kPointer, kText, kAbsent } type = Type::kAbsent;
  uint64_t bits = 0;
  double real = 0;
  const char* text = nullptr;
};

struct Argument {
  const char* name;
  Value value;
};

inline Value pointer(const void* p) {
  return {Value::Type::kPointer, reinterpret_cast<uint64_t>(p)};
}
inline Value text(const char* p) {
  return p == nullptr ? pointer(p) : Value{Value::Type::kText, 0, 0, p};
}

template <typename T>
Value value(const T& v) {
  if constexpr (std::is_pointer_v<T>) {
    return pointer(reinterpret_cast<const void*>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    return {Value::Type::kFloat, 0, static_cast<double>(v)};
  } else if constexpr (std::is_enum_v<T> || std::is_signed_v<T>) {
    return {Value::Type::kSigned, static_cast<uint64_t>(static_cast<int64_t>(v))};
  } else if constexpr (std::is_same_v<T, CUdeviceptr>) {
    return {v > 0xffff ? Value::Type::kPointer : Value::Type::kUnsigned, v};
  } else if constexpr (std::is_unsigned_v<T>) {
    return {Value::Type::kUnsigned, v};
  } else {
    return {};  // a struct by value
  }
}

// An output: what it holds after a success, else the address that was given.
template <typename T>
Value result_of(const T* p, CUresult result) {
  return p != nullptr && result == CUDA_SUCCESS ? value(*p) : pointer(p);
}

// kCounted: only the report is on.
enum class State : uint8_t { kUnknown, kOff, kCounted, kLines, kChrome };
inline constinit std::atomic<State> state{State::kUnknown};
State open_output();  // what it is from now on

// Whether calls are traced or counted.
inline bool enabled() {
  const State now = state.load(std::memory_order_relaxed);
  if (now == State::kOff) [[likely]]
    return false;
  return now != State::kUnknown || open_output() != State::kOff;
}

// Whether a Chrome trace is written, and so frames are to be observed.
inline bool chrome() {
  return enabled() && state.load(std::memory_order_acquire) == State::kChrome;
}
// Writes events of that format, each with a comma and the end of its line behind it.
void write_events(std::string_view lines);
// `text` as a string of JSON, with its quotes.
std::string quoted(const std::string& text);
// Called after each traced call that waited, on its thread.
inline constinit std::atomic<void (*)()> after_wait{nullptr};

// Around one call, on the stack of its thread.
class Scope {
 public:
  Scope(uint16_t opcode, const char* name) : opcode_(opcode), on_(enabled()), name_(name) {
    if (on_) [[unlikely]]
      begin();
  }
  bool on() const { return on_; }
  void record(CUresult result, std::initializer_list<Argument> arguments) const;

 private:
  void begin();
  void write(CUresult result, std::initializer_list<Argument> arguments, uint64_t ns) const;

  const uint16_t opcode_;
  const bool on_;
  const char* const name_;
  uint64_t begin_ns_;                          // set by begin(), and read only if it is on
  rpc::ThreadCalls before_;                    // the same
  rpc::link_times::ThreadBytes bytes_before_;  // the same
};

}  // namespace fargpu::client::trace
