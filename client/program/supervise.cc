#include "client/program/supervise.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "client/program/program_file.h"
#include "common/base/fd.h"

namespace fargpu::cli {

namespace {

std::vector<char*> argument_array(const std::vector<std::string>& arguments) {
  std::vector<char*> array;
  for (const std::string& argument : arguments)
    array.push_back(const_cast<char*>(argument.c_str()));
  array.push_back(nullptr);
  return array;
}

// A terminal signals its whole foreground group: the child has it already. A hang-up is told to the
// leader of the session alone.
bool came_from_terminal(const siginfo_t& info) {
  if (info.si_code != SI_KERNEL) return false;
  switch (info.si_signo) {
    case SIGINT:
    case SIGQUIT:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGWINCH:
      return true;
    case SIGHUP:
    case SIGCONT:
      return ::getsid(0) != ::getpid();
    default:
      return false;
  }
}

void pass_on(const siginfo_t& info, pid_t child) {
  if (info.si_signo == SIGCHLD && info.si_code != SI_USER) return;  // of our own children
  if (came_from_terminal(info)) return;
  if (info.si_code == SI_QUEUE) {
    ::sigqueue(child, info.si_signo, info.si_value);
  } else {
    ::kill(child, info.si_signo);
  }
}

bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t state = text.rfind(')');  // "pid (name) T ...", of any name
  return state != std::string::npos && text.compare(state, 3, ") T") == 0;
}

// Continues the stopped process `parent` once `child` is no longer stopped, which may happen by a
// signal to the child alone. In a process of its own, until somebody kills it.
[[noreturn]] void wake_with(pid_t parent, pid_t child) {
  ::setsid();  // stops of the terminal are not for this one
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (::getppid() == parent) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!is_stopped(child)) ::kill(parent, SIGCONT);
  }
  ::_exit(0);
}

// As the child does, so that a shell notices. Returns when this process is continued. The first
// process of a container cannot be stopped.
void stop_with(pid_t child) {
  sigset_t pending;
  if (::getpid() == 1 || ::sigpending(&pending) != 0) return;
  if (sigismember(&pending, SIGCONT) != 0) return;  // the stop would throw it away
  const pid_t parent = ::getpid();
  const pid_t waker = ::fork();
  if (waker == 0) wake_with(parent, child);
  ::raise(SIGSTOP);
  if (waker < 0) return;
  ::kill(waker, SIGKILL);
  while (::waitpid(waker, nullptr, 0) < 0 && errno == EINTR) {
  }
  // The waker's own signal says nothing new to the child.
  sigset_t continued;
  sigemptyset(&continued);
  sigaddset(&continued, SIGCONT);
  const timespec now{};
  siginfo_t info;
  if (::sigtimedwait(&continued, &info, &now) > 0 && info.si_pid != waker) pass_on(info, child);
}

Status not_executed(const std::string& program, int error) {
  const Status status = system_error("cannot run '" + program + "'", error);
  const std::string more = why_not_executed(program, error);
  return more.empty() ? status : Status(status.code(), status.message() + ": " + more);
}

}  // namespace

Status execute(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> array = argument_array(arguments);
  ::execv(program.c_str(), array.data());
  return not_executed(program, errno);
}

Result<ChildEnd> supervise(const std::string& program, const std::vector<std::string>& arguments,
                           Orphans orphans) {
  sigset_t waited, before;
  sigfillset(&waited);
  if (::sigprocmask(SIG_BLOCK, &waited, &before) != 0) return system_error("sigprocmask", errno);

  // Some parents leave SIGCHLD ignored. Then a child's end gives no signal and no waitpid() status.
  struct sigaction usual {
  }, inherited{};
  usual.sa_handler = SIG_DFL;
  if (::sigaction(SIGCHLD, &usual, &inherited) != 0) return system_error("sigaction", errno);

  // exec's failure comes back through a pipe that a successful exec closes.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  Fd reader(ends[0]), writer(ends[1]);
  std::vector<char*> array = argument_array(arguments);
  const pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) {
    // SIGKILL to this process cannot be forwarded; the program loses its GPUs with us in any case.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::sigaction(SIGCHLD, &inherited, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::execv(program.c_str(), array.data());
    int error = errno;
    [[maybe_unused]] ssize_t written = ::write(writer.get(), &error, sizeof(error));
    ::_exit(127);
  }
  writer.reset();
  int exec_error = 0;
  ssize_t got;
  do {
    got = ::read(reader.get(), &exec_error, sizeof(exec_error));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(exec_error)) {
    ::waitpid(child, nullptr, 0);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return not_executed(program, exec_error);
  }

  for (;;) {
    int state = 0;
    const pid_t ended =
        ::waitpid(orphans == Orphans::kReap ? -1 : child, &state, WNOHANG | WUNTRACED);
    if (ended > 0 && ended != child) continue;
    if (ended == child && WIFSTOPPED(state)) {
      stop_with(child);
      continue;
    }
    if (ended == child) {
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      if (WIFSIGNALED(state)) return ChildEnd{0, WTERMSIG(state)};
      return ChildEnd{WEXITSTATUS(state), 0};
    }
    if (ended < 0 && errno != EINTR) return system_error("waitpid", errno);
    siginfo_t info;
    if (::sigwaitinfo(&waited, &info) > 0) pass_on(info, child);
  }
}

void end_like(const ChildEnd& end) {
  if (end.signal == 0) std::exit(end.exit_code);
  rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(end.signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, end.signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(end.signal);
  std::_Exit(128 + end.signal);
}

}  // namespace fargpu::cli
