// NoSigpipe: for calls of libraries that write to sockets without MSG_NOSIGNAL, in a process whose
// signals are the application's.
//
// While the object lives, a write of the calling thread to a closed connection fails with EPIPE and
// gives no signal. A SIGPIPE that was pending before stays.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

namespace fargpu {

class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const int error = errno;
    if (!was_pending_) {
      constexpr timespec kAtOnce{0, 0};
      while (::sigtimedwait(&pipe_, nullptr, &kAtOnce) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace fargpu
