// Jobs of processes that share GPU memory by IPC end in random ways and orders. Whenever a process
// has been waited for, the GPU has back what it had: what cuMemGetInfo says right then is compared
// with what it said before, and now and then nearly all of it is allocated.
//
//   random_endings COUNT SEED [RUNNER...]
//
// COUNT jobs end; "60s": as many as end in that time. Every other one is started by RUNNER ("fargpu
// run ... --"), as a job of its own; the others, and all without RUNNER, belong to this program's
// job. Plain CUDA, nothing of fargpu.
#include <cuda.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/programs/driver_check.h"

namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
// What a driver keeps for later beside contexts, which are larger.
constexpr size_t kTolerance = 24 * kMebibyte;

enum End { kExit, kExitAtOnce, kKill, kTerminate, kFault, kAbort, kExec, kReset, kEnds };
constexpr const char* kNames[] = {"exit",  "_exit", "SIGKILL", "SIGTERM",
                                  "fault", "abort", "exec",    "reset and exit"};

size_t free_bytes() {
  size_t free = 0, total = 0;
  return cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

bool read_all(int fd, void* to, size_t bytes) {
  return ::recv(fd, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

template <typename Value>
bool say(int fd, const Value& value) {
  return ::send(fd, &value, sizeof value, MSG_NOSIGNAL) == sizeof value;
}

// --- a process that holds memory, at its parent's command: what it is told, it answers

struct Order {
  char what = 0;  // 'a'llocate, 'o'pen, 'c'lose, 'w'ork, 'e'nd, 'n'est
  int end = kExit;
  size_t bytes = 0;
  CUipcMemHandle handle{};
};

struct Answer {
  int result = 0;
  CUipcMemHandle handle{};
};

[[noreturn]] void end_as(int end) {
  switch (end) {
    case kExitAtOnce:
      ::_exit(0);
    case kFault:
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
      break;
    case kAbort:
      std::abort();
    case kExec:
      ::execl("/bin/true", "true", nullptr);
      break;
    case kReset:
      cuDevicePrimaryCtxReset(0);
      break;
    default:
      break;
  }
  std::exit(0);
}

struct Child {
  pid_t pid = -1;
  int fd = -1;
};

Child start(const std::vector<std::string>& command) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pair[1], STDIN_FILENO);
    std::vector<char*> arguments;
    for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(pair[1]);
  return {pid, pair[0]};
}

std::vector<std::string> self(const char* role) { return {"/proc/self/exe", role}; }

bool order(const Child& child, const Order& what, Answer* answer) {
  return say(child.fd, what) && read_all(child.fd, answer, sizeof *answer);
}

void end(Child& child, int how) {
  if (how == kKill || how == kTerminate) {
    ::kill(child.pid, how == kKill ? SIGKILL : SIGTERM);
  } else {
    say(child.fd, Order{'e', how});
  }
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  ::close(child.fd);
  child = {};
}

int member() {
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr own = 0, opened = 0;
  Child nested;
  Order told;
  while (read_all(STDIN_FILENO, &told, sizeof told)) {
    Answer answer;
    switch (told.what) {
      case 'a':
        answer.result = cuMemAlloc(&own, told.bytes);
        if (answer.result == CUDA_SUCCESS) answer.result = cuMemsetD8(own, 1, told.bytes);
        if (answer.result == CUDA_SUCCESS) answer.result = cuIpcGetMemHandle(&answer.handle, own);
        break;
      case 'o':
        answer.result =
            cuIpcOpenMemHandle(&opened, told.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        break;
      case 'c':
        answer.result = cuIpcCloseMemHandle(opened);
        break;
      case 'w':
        for (int i = 0; i < 64 && own != 0; ++i)
          answer.result |= cuMemsetD8Async(own, 2, told.bytes, nullptr);
        break;
      case 'n':
        nested = start(self("member"));
        if (!order(nested, Order{'a', 0, told.bytes}, &answer)) answer.result = -1;
        break;
      case 'e':
        if (nested.pid > 0 && told.bytes == 0) end(nested, kKill);
        end_as(told.end);
      default:
        break;
    }
    if (!say(STDIN_FILENO, answer)) return 1;
  }
  return 0;  // whoever commands it has gone
}

// --- a job: members that share memory, ended one by one

struct Luck {
  std::mt19937_64 engine;
  unsigned below(unsigned limit) { return static_cast<unsigned>(engine() % limit); }
};

struct Shared {
  Child child;
  CUipcMemHandle handle{};
  bool holds = false;  // what another member has exported
};

// With the time, for the server's log, and when the memory was back.
void tell_missing(size_t before, size_t now, const char* how) {
  using std::chrono::steady_clock;
  const std::time_t clock = std::time(nullptr);
  const auto since = steady_clock::now();
  std::chrono::duration<double, std::milli> waited{};
  bool is_back = false;
  while (!is_back && waited.count() < 3000) {
    ::usleep(500);
    is_back = free_bytes() + kTolerance >= before;
    waited = steady_clock::now() - since;
  }
  std::printf("  a job misses %zu MiB after its last member ended by %s, %s after %.1f ms (%.8s)\n",
              (before - now) / kMebibyte, how, is_back ? "back" : "and still", waited.count(),
              std::asctime(std::gmtime(&clock)) + 11);
  std::fflush(stdout);
}

// The job itself is told on stdin how to end, and says before whether all was right.
int job(unsigned long long seed) {
  Luck luck{std::mt19937_64(seed)};
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr own = 0;
  const size_t piece = 16 * kMebibyte;
  CHECK(cuMemAlloc(&own, piece));
  CUipcMemHandle handle{};
  CHECK(cuIpcGetMemHandle(&handle, own));
  const size_t before = free_bytes();
  std::vector<Shared> members(1 + luck.below(3));
  bool nests = false;
  for (size_t i = 0; i < members.size(); ++i) {
    Shared& each = members[i];
    each.child = start(self("member"));
    Answer answer;
    const size_t bytes = (1 + luck.below(12)) * piece;
    if (!order(each.child, {'a', 0, bytes}, &answer) || answer.result != 0) return 20;
    each.handle = answer.handle;
    const unsigned from = luck.below(static_cast<unsigned>(i) + 2);
    if (from <= i) {
      const CUipcMemHandle& shared = from == i ? handle : members[from].handle;
      if (!order(each.child, {'o', 0, 0, shared}, &answer) || answer.result != 0) return 21;
      each.holds = from != i;
      if (luck.below(3) == 0) {
        if (!order(each.child, {'c'}, &answer) || answer.result != 0) return 22;
        each.holds = false;
      }
    }
    if (luck.below(3) == 0 && !order(each.child, {'w', 0, bytes}, &answer)) return 23;
    if (luck.below(5) == 0) {
      if (!order(each.child, {'n', 0, piece}, &answer) || answer.result != 0) return 24;
      nests = true;
    }
  }
  const bool all = luck.below(4) != 0;  // else some are left to end with the job
  while (!members.empty()) {
    const unsigned which = luck.below(static_cast<unsigned>(members.size()));
    const int how = static_cast<int>(luck.below(kEnds));
    end(members[which].child, how);
    members.erase(members.begin() + which);
    // A member that holds another one's memory, or whose own child has not noticed yet, keeps some.
    const bool kept = nests || std::any_of(members.begin(), members.end(),
                                           [](const Shared& each) { return each.holds; });
    if (members.empty() && !kept) {
      const size_t now = free_bytes();
      if (now + kTolerance < before) {
        tell_missing(before, now, kNames[how]);
        return 25;
      }
    }
    if (!all && luck.below(2) == 0) break;
  }
  say(STDIN_FILENO, int{0});
  int how = 0;
  if (read_all(STDIN_FILENO, &how, sizeof how)) end_as(how);
  return 0;
}

// --- the observer

using Clock = std::chrono::steady_clock;

// How many jobs there are, or for how long.
struct Extent {
  explicit Extent(const std::string& text)
      : number(std::atoi(text.c_str())), is_time(!text.empty() && text.back() == 's') {}
  bool is_over(int jobs) const {
    return is_time ? Clock::now() - begin > std::chrono::seconds(number) : jobs >= number;
  }
  const int number;
  const bool is_time;
  const Clock::time_point begin = Clock::now();
};

int observe(const Extent& extent, unsigned long long seed, const std::vector<std::string>& runner) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Luck luck{std::mt19937_64(seed)};
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const size_t first = free_bytes();
  int wrong = 0;
  size_t most = 0;
  std::chrono::duration<double, std::milli> longest{};
  int i = 0;
  for (; !extent.is_over(i); ++i) {
    const size_t before = free_bytes();
    const bool own_job = !runner.empty() && i % 2 == 1;
    std::vector<std::string> command = own_job ? runner : std::vector<std::string>();
    // A runner starts the program by its name.
    char path[4096] = {};
    if (::readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 1;
    const unsigned long long plan = luck.engine();
    for (const std::string& each : {std::string(path), std::string("job"), std::to_string(plan)})
      command.push_back(each);
    Child child = start(command);
    int ready = -1;
    const bool right = read_all(child.fd, &ready, sizeof ready) && ready == 0;
    const int how = static_cast<int>(luck.below(kEnds));
    if (how == kKill || how == kTerminate) {
      ::kill(child.pid, how == kKill ? SIGKILL : SIGTERM);
    } else {
      say(child.fd, how);
    }
    ::close(child.fd);
    int status = 0;
    while (::waitpid(-1, &status, 0) > 0) {  // also those that have lost their parent
    }
    const auto asked = Clock::now();
    const size_t after = free_bytes();
    longest = std::max<decltype(longest)>(longest, Clock::now() - asked);
    const size_t missing = before > after ? before - after : 0;
    most = std::max(most, missing);
    CUdeviceptr nearly_all = 0;
    CUresult taken = CUDA_SUCCESS;
    if (luck.below(4) == 0) {
      taken = cuMemAlloc(&nearly_all, before - std::min(before, 64 * kMebibyte));
      if (taken == CUDA_SUCCESS) CHECK(cuMemFree(nearly_all));
    }
    if (!right || missing > kTolerance || taken != CUDA_SUCCESS) {
      ++wrong;
      std::printf("job %d (seed %llu, %s) ended by %s: %zu MiB missing%s%s\n", i, plan,
                  own_job ? "its own" : "ours", kNames[how], missing / kMebibyte,
                  right ? "" : ", and it was not right before",
                  taken == CUDA_SUCCESS ? "" : ", an allocation failed");
      std::fflush(stdout);
    }
  }
  const size_t last = free_bytes();
  std::printf(
      "%d jobs ended, seed %llu: free memory before %zu MiB, after %zu MiB; %d wrong, at most %zu "
      "MiB "
      "missing, longest question %.1f ms\n",
      i, seed, first / kMebibyte, last / kMebibyte, wrong, most / kMebibyte, longest.count());
  return wrong == 0 && last + kTolerance >= first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "member") return member();
  if (role == "job" && argc > 2) return job(std::strtoull(argv[2], nullptr, 10));
  if (argc < 3) return 2;
  return observe(Extent(argv[1]), std::strtoull(argv[2], nullptr, 10),
                 std::vector<std::string>(argv + 3, argv + argc));
}
