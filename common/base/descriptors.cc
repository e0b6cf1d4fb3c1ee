#include "common/base/descriptors.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <initializer_list>

namespace fargpu::descriptors {
namespace {

// Loops that close descriptors often end here, whatever the limit is.
constexpr rlim_t kLoopsEnd = 1024;
constexpr rlim_t kRoom = 256;  // at least so many numbers above the program's limit
// Larger numbers make the kernel's table large, which fork() copies.
constexpr rlim_t kMost = 65536;

std::atomic<bool> foreign{false};

// Which of 0, 1 and 2 are occupied, and for how many calls. The lock is that of a process: a child
// of fork() takes it from a thread that it does not have.
struct Standard {
  std::atomic<pid_t> holder{0};
  pid_t process = 0;
  int users = 0;
  bool ours[STDERR_FILENO + 1] = {};
};
constinit Standard standard;

class ProcessLock {
 public:
  ProcessLock() {
    const pid_t self = ::getpid();
    for (;;) {
      pid_t holder = 0;
      if (standard.holder.compare_exchange_weak(holder, self, std::memory_order_acquire)) break;
      if (holder != 0 && holder != self && standard.holder.compare_exchange_weak(holder, self))
        break;
      ::sched_yield();
    }
    if (standard.process != self) standard.users = 0;
    standard.process = self;
  }
  ~ProcessLock() { standard.holder.store(0, std::memory_order_release); }
};

bool is_closed(int descriptor) { return ::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF; }

bool any_standard_closed() {
  for (const int one : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (is_closed(one)) return true;
  return false;
}

// What open() gives fills the lowest numbers first.
void occupy() {
  while (any_standard_closed()) {
    const int made = ::open("/", O_PATH | O_CLOEXEC);
    if (made > STDERR_FILENO) ::close(made);
    if (made < 0 || made > STDERR_FILENO) return;
    standard.ours[made] = true;
  }
}

void leave() {
  for (const int one : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (!standard.ours[one]) continue;
    standard.ours[one] = false;
    // The program may have put a file of its own there.
    const int flags = ::fcntl(one, F_GETFL);
    if (flags >= 0 && (flags & O_PATH) != 0) ::close(one);
  }
}

// A number above the soft limit, which stays usable when the limit is back. -1: no room.
int number_above_limit(int descriptor) {
  const ProcessLock lock;
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return -1;
  const rlim_t first = std::max(before.rlim_cur, kLoopsEnd);
  if (first > kMost - kRoom || before.rlim_max < first + kRoom) return -1;
  const rlimit raised{std::min(before.rlim_max, kMost), before.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) return -1;
  const int number = ::fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(first));
  rlimit now{};
  // Unless another thread has set it meanwhile.
  if (::getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == raised.rlim_cur &&
      now.rlim_max == raised.rlim_max)
    (void)::setrlimit(RLIMIT_NOFILE, &before);
  return number;
}

int number_below_limit(int descriptor) {
  for (const int first : {1024, 512, 256, 128, 64, 32, 16, STDERR_FILENO + 1}) {
    const int number = ::fcntl(descriptor, F_DUPFD_CLOEXEC, first);
    if (number >= 0) return number;
  }
  return -1;
}

// What our numbers stand for, so that a file of the program by the same number is noticed. 0: not
// ours, or not known. All eventfds, epolls and timerfds are one file here.
std::atomic<uint64_t> files[kMost];

uint64_t file_of(int number) {
  struct stat about {};
  if (::fstat(number, &about) != 0) return 0;
  return (about.st_ino * 0x9e3779b97f4a7c15u ^ about.st_dev) | 1;
}

void remember(int number) {
  if (static_cast<rlim_t>(number) < kMost)
    files[number].store(file_of(number), std::memory_order_relaxed);
}

}  // namespace

void in_foreign_process() { foreign.store(true, std::memory_order_relaxed); }

bool is_foreign_process() { return foreign.load(std::memory_order_relaxed); }

void open_standard(bool inherited) {
  while (any_standard_closed()) {
    const int made = ::open("/dev/null", O_RDWR | (inherited ? 0 : O_CLOEXEC));
    if (made > STDERR_FILENO) ::close(made);
    if (made < 0 || made > STDERR_FILENO) return;
  }
}

StandardTaken::StandardTaken() {
  if (!is_foreign_process()) return;
  const int error = errno;
  const ProcessLock lock;
  ++standard.users;
  occupy();
  errno = error;
}

StandardTaken::~StandardTaken() {
  if (!is_foreign_process()) return;
  const int error = errno;
  const ProcessLock lock;
  if (standard.users > 0 && --standard.users == 0) leave();
  errno = error;
}

Fd place(Fd fresh) {
  if (!fresh.valid() || !is_foreign_process()) return fresh;
  int number = number_above_limit(fresh.get());
  if (number < 0) number = number_below_limit(fresh.get());
  const int error = errno;
  if (number < 0 && fresh.get() > STDERR_FILENO) {
    remember(fresh.get());
    return fresh;
  }
  ::close(fresh.release());  // what was remembered of this number is another descriptor's
  if (number >= 0) remember(number);
  errno = error;
  return Fd(number);
}

int own(int number) {
  if (!is_foreign_process() || number < 0 || static_cast<rlim_t>(number) >= kMost) return number;
  const uint64_t file = files[number].load(std::memory_order_relaxed);
  return file == 0 || file == file_of(number) ? number : -1;
}

int disown(int number) {
  const int ours = own(number);
  if (is_foreign_process() && number >= 0 && static_cast<rlim_t>(number) < kMost)
    files[number].store(0, std::memory_order_relaxed);
  return ours;
}

Status make_pair(int type, Fd& one, Fd& other) {
  const StandardTaken taken;
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("cannot create a socket pair", errno);
  one = place(Fd(ends[0]));
  other = place(Fd(ends[1]));
  if (!one.valid() || !other.valid()) return system_error("cannot create a socket pair", EMFILE);
  return Status();
}

Fd open_file(const char* path, int flags, mode_t mode) {
  return make([&] { return ::open(path, flags | O_CLOEXEC, mode); });
}

}  // namespace fargpu::descriptors
