#include "client/program/companion.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fargpu::cli {
namespace {

// Not more than a pipe accepts in one write: 16 tickets have 800 bytes.
constexpr size_t kMostText = 2048;

// A duplicate of the descriptor that is none of the standard ones, which may be closed.
Fd above_standard(Fd file) {
  if (file.get() > STDERR_FILENO || !file.valid()) return file;
  return Fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Fd watch_itself() {
  return above_standard(Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))));
}

Result<std::string> read_answer(const Fd& pipe) {
  std::string bytes;
  char part[512];
  for (;;) {
    const ssize_t got = ::read(pipe.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(part, static_cast<size_t>(got));
  }
  StatusCode code = StatusCode::kOk;
  if (bytes.size() < sizeof code)
    return Status(StatusCode::kSystem, "a process beside the program died at its start");
  std::memcpy(&code, bytes.data(), sizeof code);
  if (code != StatusCode::kOk) return Status(code, bytes.substr(sizeof code));
  return bytes.substr(sizeof code);
}

}  // namespace

// The code, then the text or the message.
void Companion::answer(const Result<std::string>& result) {
  const StatusCode code = result.ok() ? StatusCode::kOk : result.status().code();
  std::string bytes(reinterpret_cast<const char*>(&code), sizeof code);
  bytes += (result.ok() ? *result : result.status().message()).substr(0, kMostText);
  [[maybe_unused]] const ssize_t written = ::write(answer_.get(), bytes.data(), bytes.size());
  answer_.reset();
}

void Companion::wait_for_the_program() const {
  pollfd end{program_.get(), POLLIN, 0};
  while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
}

void Companion::leave_the_program(const char* name, Stderr what) {
  ::prctl(PR_SET_NAME, name);
  const Fd nothing = above_standard(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool keep = standard == STDERR_FILENO && what == Stderr::kKeep;
    if (!keep || ::fcntl(standard, F_GETFD) < 0) ::dup2(nothing.get(), standard);
  }
  const auto low = static_cast<unsigned>(std::min(program_.get(), answer_.get()));
  const auto high = static_cast<unsigned>(std::max(program_.get(), answer_.get()));
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0u, 0);
}

bool can_become_the_program() {
  int reaper = 0;
  return watch_itself().valid() && ::getpid() != 1 &&
         (::prctl(PR_GET_CHILD_SUBREAPER, &reaper) != 0 || reaper == 0);
}

Result<std::string> start_companion(const std::function<void(Companion&)>& body) {
  // Refers to this process, which becomes the program.
  Fd self = watch_itself();
  if (!self.valid()) return system_error("pidfd_open", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  const Fd reader(ends[0]);
  Fd writer = above_standard(Fd(ends[1]));
  if (!writer.valid()) return system_error("fcntl", errno);
  const pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) {
    // The companion is the child of a child that has gone: the program must not find a child that
    // it did not start.
    ::setsid();
    Companion companion(std::move(self), std::move(writer));
    const pid_t second = ::fork();
    if (second == 0) body(companion);
    if (second < 0) companion.answer(system_error("fork", errno));
    ::_exit(0);
  }
  writer.reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return read_answer(reader);
}

}  // namespace fargpu::cli
