#include "server/launch/child_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <string_view>

#include "common/base/fd.h"
#include "common/bootstrap/job_ticket.h"

extern char** environ;

namespace fargpu::server {
namespace {

// What a process gets of the daemon's environment: what drivers and their libraries read, and the
// settings of fargpu; nothing else of the operator's.
constexpr std::string_view kKept[] = {"HOME",         "LANG", "LC_ALL",        "LD_LIBRARY_PATH",
                                      "LSAN_OPTIONS", "PATH", "ASAN_OPTIONS",  "TMPDIR",
                                      "TSAN_OPTIONS", "TZ",   "UBSAN_OPTIONS", "XDG_CACHE_HOME"};
constexpr std::string_view kKeptPrefixes[] = {"CUDA_", "FARGPU_", "IBV_",
                                              "MLX",   "NVIDIA_", "RDMAV_"};
// Secrets of clients. A daemon that was started inside a job has them in its environment.
constexpr std::string_view kOfClients[] = {bootstrap::kJobVariable, "FARGPU_TOKEN"};

bool is_kept(std::string_view name) {
  const auto equals = [name](std::string_view other) { return name == other; };
  if (std::any_of(std::begin(kOfClients), std::end(kOfClients), equals)) return false;
  return std::any_of(std::begin(kKept), std::end(kKept), equals) ||
         std::any_of(std::begin(kKeptPrefixes), std::end(kKeptPrefixes),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// Above every number that a child is given, so that no dup2 in the child overwrites a source of a
// later one.
constexpr int kSafeDescriptor = 64;

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || !is_kept(text.substr(0, equals))) continue;
    all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : changes) all[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : all) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// While it lives, processes that this thread starts have their libraries and mappings from a third
// of the address space upwards. Clients have theirs below the stack, and the worker maps the host
// memory that a client registers at the client's addresses. Where the system forbids this, such
// addresses collide now and then, and registering fails with a message. ThreadSanitizer needs the
// usual layout.
class LowMappings {
 public:
  LowMappings() : before_(::personality(kAsk)) {
#if !defined(__SANITIZE_THREAD__)
    if (before_ >= 0) ::personality(static_cast<unsigned long>(before_) | ADDR_COMPAT_LAYOUT);
#endif
  }
  ~LowMappings() {
    if (before_ >= 0) ::personality(static_cast<unsigned long>(before_));
  }
  LowMappings(const LowMappings&) = delete;
  LowMappings& operator=(const LowMappings&) = delete;

 private:
  static constexpr unsigned long kAsk = 0xffffffff;
  const int before_;
};

Result<pid_t> spawn(const ProcessSetup& setup) {
  std::vector<std::string> arguments = {setup.program};
  arguments.insert(arguments.end(), setup.arguments.begin(), setup.arguments.end());
  std::vector<std::string> environment = merged_environment(setup.environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  std::vector<Fd> high;
  int last = STDERR_FILENO;
  for (const auto& [ours, theirs] : setup.descriptors) {
    high.emplace_back(::fcntl(ours, F_DUPFD_CLOEXEC, kSafeDescriptor));
    if (!high.back().valid()) {
      posix_spawn_file_actions_destroy(&actions);
      return system_error("cannot duplicate a descriptor for the worker", errno);
    }
    posix_spawn_file_actions_adddup2(&actions, high.back().get(), theirs);
    last = std::max(last, theirs);
  }
  // Also descriptors that the parent process left open without close-on-exec.
  posix_spawn_file_actions_addclosefrom_np(&actions, last + 1);
  // Signals that we handle or ignore are the default again in the child.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigemptyset(&all);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&all, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A process group of its own: Ctrl-C in the daemon's terminal drains, it does not kill the
  // sessions.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  pid_t pid = -1;
  const LowMappings low;
  const int error = ::posix_spawn(&pid, setup.program.c_str(), &actions, &attributes,
                                  pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error("cannot start " + setup.program, error);
  return pid;
}

class Child final : public LaunchedProcess {
 public:
  Child(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  ~Child() override { (void)end(); }
  int id() const override { return pid_; }
  void signal(int number) override {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
  }
  int end_descriptor() const override { return pidfd_.get(); }
  std::optional<ProcessEnd> end() override;

 private:
  const pid_t pid_;
  const Fd pidfd_;
  std::optional<ProcessEnd> end_;
};

std::optional<ProcessEnd> Child::end() {
  if (end_) return end_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) == 0) {
    if (info.si_pid == pid_) {
      const bool exited = info.si_code == CLD_EXITED;
      end_ = {exited ? info.si_status : 0, exited ? 0 : info.si_status, info.si_code == CLD_DUMPED};
    }
  } else if (errno == ECHILD) {
    end_ = {.code = -1};  // somebody else in this process has waited for it
  }
  return end_;
}

}  // namespace

ChildLauncher::ChildLauncher() {
  struct sigaction now {};
  if (::sigaction(SIGCHLD, nullptr, &now) == 0 &&
      (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0)) {
    ::signal(SIGCHLD, SIG_DFL);
  }
}

Result<std::unique_ptr<LaunchedProcess>> ChildLauncher::start(const ProcessSetup& setup) {
  FARGPU_ASSIGN_OR_RETURN(const pid_t pid, spawn(setup));
  // The child has not been waited for before, so the number is still its own.
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const Status status = system_error("cannot watch the process of " + setup.program, errno);
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
  return std::unique_ptr<LaunchedProcess>(std::make_unique<Child>(pid, std::move(pidfd)));
}

}  // namespace fargpu::server
