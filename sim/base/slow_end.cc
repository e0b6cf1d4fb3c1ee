#include "sim/base/slow_end.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <thread>
#include <utility>

#include "common/base/fd.h"

namespace fargpu::sim {
namespace {

// Invalid: a process that has started this one listens already, and there is one listener. exit()
// and _exit() come to this system call. The thread that makes it sleeps until the listener
// has let it go on.
Result<Fd> listen_for_exits() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  constexpr unsigned long kFlags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC |
                                   SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  Fd listener(static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program)));
  if (!listener.valid() && errno == EBUSY) return Fd();
  if (!listener.valid()) return system_error("a filter of system calls", errno);
  return listener;
}

void let_go(const Fd& listener, std::chrono::milliseconds time, const std::function<bool()>& slow) {
  for (;;) {
    seccomp_notif exit{};
    if (::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_RECV, &exit) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      return;
    }
    // A thread of this process, or a process that was started by it.
    const bool ours = ::syscall(SYS_tgkill, ::getpid(), exit.pid, 0) == 0;
    if (ours && slow()) std::this_thread::sleep_for(time);
    seccomp_notif_resp answer{};
    answer.id = exit.id;
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

}  // namespace

Status end_slowly(std::chrono::milliseconds time, std::function<bool()> slow) {
  FARGPU_ASSIGN_OR_RETURN(Fd listener, listen_for_exits());
  if (!listener.valid()) return Status();
  std::thread([listener = std::move(listener), time, slow = std::move(slow)] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    let_go(listener, time, slow);
  }).detach();
  return Status();
}

}  // namespace fargpu::sim
