#include "common/host/unchanged_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>

#include "common/base/descriptors.h"
#include "common/base/keep_errno.h"
#include "common/host/thread.h"

namespace fargpu {
namespace {

struct MappedFile {
  dev_t device = 0;
  ino_t inode = 0;
  std::string path;  // empty: there is none
};

MappedFile file_at(uint64_t begin, uint64_t end) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return {};
  std::array<char, 4352> line;
  MappedFile found;
  while (std::fgets(line.data(), line.size(), maps) != nullptr) {
    unsigned long long from = 0, until = 0, inode = 0;
    unsigned major = 0, minor = 0;
    char permissions[8] = {};
    int path = 0;
    if (std::sscanf(line.data(), "%llx-%llx %7s %*s %x:%x %llu %n", &from, &until, permissions,
                    &major, &minor, &inode, &path) < 6 ||
        until <= begin)
      continue;
    const size_t length = std::strcspn(line.data() + path, "\n");
    if (from <= begin && end <= until && std::strcmp(permissions, "r--s") == 0)
      found = {makedev(major, minor), inode, std::string(line.data() + path, length)};
    break;
  }
  std::fclose(maps);
  return found;
}

bool is_local(int file) {
  constexpr unsigned kExt = 0xEF53, kXfs = 0x58465342;
  struct statfs system = {};
  if (::fstatfs(file, &system) != 0) return false;
  const auto type = static_cast<unsigned>(system.f_type);
  return type == kExt || type == kXfs;
}

// The system sends a signal when somebody waits for a lease. It goes to a thread that takes none
// and lives as long as the process. 0: there is none.
pid_t thread_for_signals() {
  static std::atomic<pid_t> id{0};
  static std::once_flag once;
  try {
    std::call_once(once, [] {
      Thread([] {
        id = ::gettid();
        id.notify_all();
        for (;;) ::pause();
      }).detach();
      id.wait(0);
    });
  } catch (const std::system_error&) {
  }
  return id;
}

// False: somebody may write it.
bool lease(int file) {
  // The end of each lease forgets whose signals they are.
  const struct f_owner_ex owner = {F_OWNER_TID, thread_for_signals()};
  return owner.pid != 0 && ::fcntl(file, F_SETOWN_EX, &owner) == 0 &&
         ::fcntl(file, F_SETLEASE, F_RDLCK) == 0;
}

// How long ago a change must be so that a later one has another time.
bool is_past(const struct timespec& changed) {
  constexpr int64_t kSecond = 1'000'000'000, kTicks = kSecond / 10, kSeconds = 3 * kSecond;
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age = (now.tv_sec - changed.tv_sec) * kSecond + now.tv_nsec - changed.tv_nsec;
  // Some file systems have whole seconds.
  return age > (changed.tv_nsec != 0 ? kTicks : kSeconds);
}

}  // namespace

std::unique_ptr<UnchangedFile> UnchangedFile::of(uint64_t begin, uint64_t end) {
  const KeepErrno keep;
  const MappedFile mapped = file_at(begin, end);
  if (mapped.path.empty()) return nullptr;
  Fd file = descriptors::make(
      [&] { return ::open(mapped.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  struct stat found = {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || found.st_dev != mapped.device ||
      found.st_ino != mapped.inode || !is_local(file.get()))
    return nullptr;
  return std::unique_ptr<UnchangedFile>(new UnchangedFile(std::move(file)));
}

UnchangedFile::State UnchangedFile::state() const {
  const KeepErrno keep;
  const int file = descriptors::own(file_.get());
  if (file < 0 || !lease(file)) return {};
  struct stat now = {};
  const bool known = ::fstat(file, &now) == 0 && is_past(now.st_ctim);
  (void)::fcntl(file, F_SETLEASE, F_UNLCK);
  return {known, now.st_ctim};
}

bool UnchangedFile::is_as_seen() {
  look_ = state();
  return look_.is_known && seen_.is_known && look_.changed.tv_sec == seen_.changed.tv_sec &&
         look_.changed.tv_nsec == seen_.changed.tv_nsec;
}

}  // namespace fargpu
