#include "client/hostmem/direct_reads.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "common/base/descriptors.h"

namespace fargpu::client {
namespace {

constexpr long kXfs = 0x58465342;

// Those whose files are read through the page cache unless O_DIRECT says otherwise.
bool is_cached(long file_system) {
  switch (file_system) {
    case EXT4_SUPER_MAGIC:
    case kXfs:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case SQUASHFS_MAGIC:
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
      return true;
    default:
      return false;
  }
}

// /dev/null and its like, and terminals.
bool is_plain(dev_t device) {
  const unsigned number = major(device);
  return number == 1 || number == 4 || number == 5 || (number >= 136 && number <= 143);
}

// What has no file: events, timers and what else only tells of something.
bool is_plain(int folder, const char* name) {
  constexpr std::string_view kPlain[] = {
      "[eventfd]", "[eventpoll]",  "[signalfd]", "[timerfd]", "[userfaultfd]", "inotify",
      "[pidfd]",   "[perf_event]", "[fanotify]", "bpf-map",   "bpf-prog"};
  constexpr std::string_view kBegin = "anon_inode:";
  std::array<char, 64> text{};
  const ssize_t length = ::readlinkat(folder, name, text.data(), text.size());
  if (length <= 0) return length < 0 && errno == ENOENT;
  std::string_view link(text.data(), static_cast<size_t>(length));
  if (!link.starts_with(kBegin)) return false;
  link.remove_prefix(kBegin.size());
  return std::find(std::begin(kPlain), std::end(kPlain), link) != std::end(kPlain);
}

bool may_read(int folder, const char* name) {
  const int file = std::atoi(name);
  const int flags = ::fcntl(file, F_GETFL);
  struct stat about = {};
  if (flags < 0 || ::fstat(file, &about) != 0) return false;  // closed meanwhile
  if ((flags & O_PATH) != 0) return false;
  const bool is_direct = (flags & O_DIRECT) != 0 && (flags & O_ACCMODE) != O_WRONLY;
  switch (about.st_mode & S_IFMT) {
    case S_IFREG: {
      struct statfs system = {};
      return is_direct || ::fstatfs(file, &system) != 0 || !is_cached(system.f_type);
    }
    case S_IFBLK:
      return is_direct;
    case S_IFCHR:
      return !is_plain(about.st_rdev);
    case S_IFDIR:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFLNK:
      return false;
    default:
      return !is_plain(folder, name);
  }
}

}  // namespace

bool may_read_directly() {
  const Fd folder =
      descriptors::make([] { return ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (!folder.valid()) return true;
  alignas(dirent64) std::array<char, 2048> entries;
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, folder.get(), entries.data(), entries.size());
    if (bytes <= 0) return bytes < 0;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      at += entry->d_reclen;
      if (entry->d_name[0] != '.' && may_read(folder.get(), entry->d_name)) return true;
    }
  }
}

}  // namespace fargpu::client
