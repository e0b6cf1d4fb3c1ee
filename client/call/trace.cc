#include "client/call/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "client/call/json_text.h"
#include "client/call/report.h"
#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/since_load.h"
#include "generated/schema/result_names.h"

namespace fargpu::client::trace {
namespace {

constexpr size_t kMaxText = 200;  // of a text argument

std::mutex open_mutex;
int descriptor = -1;  // written before `state` leaves kUnknown (release), read after (acquire)

// Frames are counted and observed from now on; the list is closed at the end of this process, not
// of a forked child, which writes on.
void begin_chrome() {
  pthread_atfork(nullptr, nullptr, rpc::link_times::forget_after_fork);
  rpc::counting_calls.store(true, std::memory_order_relaxed);
  static const pid_t opened_by = ::getpid();
  std::atexit([] {
    if (::getpid() != opened_by) return;
    state.store(report::enabled() ? State::kCounted : State::kOff, std::memory_order_relaxed);
    write_events(fmt::format(
        "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":{}}}}}\n]\n",
        opened_by, quoted(program_invocation_short_name)));
  });
}

}  // namespace

State open_output() {
  const std::lock_guard lock(open_mutex);
  if (const State known = state.load(std::memory_order_relaxed); known != State::kUnknown)
    return known;
  const auto setting = env_text("FARGPU_TRACE");
  report::start_if_asked();
  State next = report::enabled() ? State::kCounted : State::kOff;
  if (setting && *setting != "0") {
    const std::string_view path = *setting;
    if (path == "1") {
      descriptor = STDERR_FILENO;
      next = State::kLines;
    } else {
      const bool chrome = path.ends_with(".json");
      // Never closed: calls come until the very end of the process.
      descriptor =
          descriptors::open_file(setting->c_str(),
                                 O_WRONLY | O_CREAT | (chrome ? O_TRUNC : 0) | O_APPEND, 0644)
              .release();
      if (descriptor < 0) {
        log::error("FARGPU_TRACE={}: cannot be opened: {}{}; no trace is written", *setting,
                   std::strerror(errno), explanation(errno));
      } else {
        next = chrome ? State::kChrome : State::kLines;
        // The closing bracket may be missing in this format, so a trace is readable however the
        // process ends.
        if (chrome && ::write(descriptor, "[\n", 2) != 2) {
          next = report::enabled() ? State::kCounted : State::kOff;
        } else if (chrome) {
          begin_chrome();
        }
      }
    }
  }
  state.store(next, std::memory_order_release);
  return next;
}

namespace {

using Buffer = fmt::basic_memory_buffer<char, 1024>;

void append_value(Buffer& out, const Value& value, bool json) {
  auto to = std::back_inserter(out);
  switch (value.type) {
    case Value::Type::kUnsigned:
      fmt::format_to(to, "{}", value.bits);
      break;
    case Value::Type::kSigned:
      fmt::format_to(to, "{}", static_cast<int64_t>(value.bits));
      break;
    case Value::Type::kFloat:
      fmt::format_to(to, fmt::runtime(json ? "\"{}\"" : "{}"),
                     value.real);  // JSON knows no infinities
      break;
    case Value::Type::kPointer:
      fmt::format_to(to, fmt::runtime(json ? "\"{:#x}\"" : "{:#x}"), value.bits);
      break;
    case Value::Type::kText:
      append_json_text(out, {value.text, strnlen(value.text, kMaxText)});
      break;
    case Value::Type::kAbsent:
      fmt::format_to(to, "{}", json ? "\"...\"" : "...");
      break;
  }
}

void append_result(Buffer& out, CUresult result) {
  auto to = std::back_inserter(out);
  if (const char* name = schema::result_name(result); name != nullptr) {
    fmt::format_to(to, "{}", name);
  } else {
    fmt::format_to(to, "CUresult {}", static_cast<int>(result));
  }
}

// How the call was answered (report.h).
const char* way(const rpc::ThreadCalls& before) {
  if (rpc::thread_calls.waited != before.waited) return "waited";
  return rpc::thread_calls.sent != before.sent ? "sent" : "local";
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

void Scope::begin() {
  before_ = rpc::thread_calls;
  bytes_before_ = rpc::link_times::thread_bytes;
  begin_ns_ = now_ns();
}

void Scope::record(CUresult result, std::initializer_list<Argument> arguments) const {
  const uint64_t ns = now_ns() - begin_ns_;
  if (report::enabled()) report::count_call(opcode_, before_, ns, result);
  const State now = state.load(std::memory_order_acquire);
  if (now == State::kLines || now == State::kChrome) write(result, arguments, ns);
  if (rpc::thread_calls.waited == before_.waited) return;
  if (const auto then = after_wait.load(std::memory_order_acquire)) then();
}

void Scope::write(CUresult result, std::initializer_list<Argument> arguments, uint64_t ns) const {
  const bool json = state.load(std::memory_order_acquire) == State::kChrome;
  const double micros = static_cast<double>(ns) / 1000.0;
  const long thread = ::syscall(SYS_gettid);
  Buffer out;
  auto to = std::back_inserter(out);
  if (json) {
    fmt::format_to(
        to,
        R"({{"name":"{}","cat":"cuda","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
        R"("args":{{"result":")",
        name_, ::getpid(), thread, static_cast<double>(begin_ns_) / 1000.0, micros);
    append_result(out, result);
    const rpc::link_times::ThreadBytes bytes = rpc::link_times::thread_bytes;
    fmt::format_to(
        to, R"(","fargpu":{{"opcode":{},"way":"{}","bytes_sent":{},"bytes_received":{}}})", opcode_,
        way(before_), bytes.sent - bytes_before_.sent, bytes.received - bytes_before_.received);
  } else {
    fmt::format_to(to, "[{}] {}(", thread, name_);
  }
  const char* separator = json ? "," : "";
  for (const Argument& argument : arguments) {
    fmt::format_to(to, fmt::runtime(json ? "{}\"{}\":" : "{}{}="), separator, argument.name);
    append_value(out, argument.value, json);
    separator = json ? "," : ", ";
  }
  if (json) {
    fmt::format_to(to, "}}}},\n");
  } else {
    fmt::format_to(to, ") = ");
    append_result(out, result);
    fmt::format_to(to, " ({:.1f} us)\n", micros);
  }
  write_events({out.data(), out.size()});
}

// One write on an O_APPEND descriptor: lines of threads and processes do not mix. A full disk loses
// lines, not the program.
void write_events(std::string_view lines) {
  [[maybe_unused]] const ssize_t written =
      ::write(descriptors::own(descriptor), lines.data(), lines.size());
}

std::string quoted(const std::string& text) {
  Buffer out;
  append_json_text(out, text);
  return fmt::to_string(out);
}

}  // namespace fargpu::client::trace
