// SignalsBlocked: for the start of a thread of ours in a process whose signals are the
// application's.
//
// The calling thread takes no signal while the object lives, and has its own mask again after it. A
// thread that is started meanwhile inherits the mask and never takes one. Signals raised by a
// thread's own instruction stay unblocked: the process has a handler for it, or ends.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace fargpu {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigdelset(&all, own);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace fargpu
