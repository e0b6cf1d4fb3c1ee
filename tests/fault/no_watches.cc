// A library for LD_PRELOAD: while the file of $NO_WATCHES_WHILE exists, the system watches no
// further descriptor by epoll, as at fs.epoll.max_user_watches.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int epoll_ctl(int poller, int operation,
                                                                int descriptor,
                                                                epoll_event* event) {
  const char* const file = std::getenv("NO_WATCHES_WHILE");
  if (operation == EPOLL_CTL_ADD && file != nullptr && ::access(file, F_OK) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_epoll_ctl, poller, operation, descriptor, event));
}
