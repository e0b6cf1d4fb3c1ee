#include "server/handover/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "common/base/fd.h"
#include "common/bootstrap/job_ticket.h"

extern char** environ;

namespace fargpu::server {
namespace {

// Secrets of clients. A daemon that was started inside a job has them in its environment; its
// children must not.
constexpr std::string_view kOfClients[] = {bootstrap::kJobVariable, "FARGPU_TOKEN"};

// Above every number that a child is given, so that no dup2 in the child overwrites a source of a
// later one.
constexpr int kSafeDescriptor = 64;

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const size_t equals = text.find('='); equals != std::string::npos) {
      all[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  for (const std::string_view name : kOfClients) all.erase(std::string(name));
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

}  // namespace

Result<pid_t> start_child(const ChildSetup& setup) {
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
  // Also what whoever started us left open without close-on-exec.
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

std::string describe_wait_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("was killed by signal {} ({}){}", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)),
                       WCOREDUMP(wait_status) ? " and left a core dump" : "");
  }
  return fmt::format("exited with {}", WEXITSTATUS(wait_status));
}

}  // namespace fargpu::server
