#include "server/handover/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "common/base/fd.h"

extern char** environ;

namespace fargpu::server {
namespace {

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

// What this thread starts while it lives has its libraries and mappings from a third of the address
// space upwards, not below the stack, where clients have theirs: the worker needs memory at the
// addresses of host memory that a client registers. Where the system forbids it, addresses collide
// now and then, and registering says so. ThreadSanitizer needs the usual places.
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

Result<ChildOutput> run_child(ChildSetup setup, std::chrono::milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  Fd reading(ends[0]);
  Fd writing(ends[1]);
  setup.descriptors.emplace_back(writing.get(), 1);
  FARGPU_ASSIGN_OR_RETURN(const pid_t pid, start_child(setup));
  writing.reset();

  ChildOutput output;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool timed_out = false;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{reading.get(), POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&entry, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    char buffer[4096];
    const ssize_t got = ready > 0 ? ::read(reading.get(), buffer, sizeof buffer) : -1;
    if (ready > 0 && got < 0 && errno == EINTR) continue;
    timed_out = ready == 0;
    if (got > 0) output.text.append(buffer, static_cast<size_t>(got));
    if (got <= 0 || output.text.size() > (1u << 20)) break;
  }
  if (timed_out || output.text.size() > (1u << 20)) ::kill(pid, SIGKILL);
  while (::waitpid(pid, &output.wait_status, 0) < 0 && errno == EINTR) {
  }
  if (timed_out) {
    return Status(StatusCode::kTimeout, fmt::format("{} did not answer within {} s", setup.program,
                                                    limit.count() / 1000));
  }
  return output;
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
