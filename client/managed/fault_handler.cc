#include "client/managed/fault_handler.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "client/managed/fault_service.h"
#include "client/managed/managed_memory.h"

namespace fargpu::client {
namespace {

struct Watched {
  uint64_t bytes;
  ManagedMemory* memory;
  FaultService* service;
};

struct Watch {
  std::shared_mutex mutex;
  std::map<uint64_t, Watched> ranges;  // by address; guarded by mutex
  bool forked = false;                 // the ranges are the parent's
};
Watch& watch();
void install_in_child();

// The process that this thread is about to fork from, while it has the lock for that; else 0.
thread_local pid_t forked_from = 0;

void before_fork() {
  watch().mutex.lock();
  forked_from = ::getpid();
}

void after_fork_in_parent() {
  forked_from = 0;
  watch().mutex.unlock();
}

void after_fork() {
  forked_from = 0;
  Watch& all = watch();
  // It knows its owner by a thread id that the child does not have.
  new (&all.mutex) std::shared_mutex;
  all.forked = true;
  if (!all.ranges.empty()) install_in_child();
}

// Never destroyed: faults come until the very end of the process. A fork waits for the lock, so
// that the child finds whole ranges.
Watch& watch() {
  static auto& made = *[] {
    auto* const all = new Watch;
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork);
    return all;
  }();
  return made;
}

std::mutex install_mutex;
struct sigaction before = {};  // written under install_mutex, before the handler is installed
std::atomic<bool> was_passed{false};  // SA_RESETHAND: it gets one fault

constexpr auto kEndOfProcess = std::chrono::seconds(5);

void say(const char* what, uint64_t address) {
  char line[160];
  const int length = std::snprintf(line, sizeof line, "fargpu: managed memory at 0x%llx %s\n",
                                   static_cast<unsigned long long>(address), what);
  if (length > 0) (void)!::write(STDERR_FILENO, line, static_cast<size_t>(length));
}

bool is_write(const ucontext_t& context) {
#if defined(__x86_64__)
  constexpr uint64_t kWrite = 2;  // of a page fault's error code
  return (static_cast<uint64_t>(context.uc_mcontext.gregs[REG_ERR]) & kWrite) != 0;
#else
#error "how a write is told from a read"
#endif
}

// A jump into managed memory, which holds no code.
bool is_fetch(const ucontext_t& context) {
  constexpr uint64_t kFetch = 0x10;
  return (static_cast<uint64_t>(context.uc_mcontext.gregs[REG_ERR]) & kFetch) != 0;
}

// False: the fault is none of ours, or cannot be served.
bool serve(uint64_t address, bool write) {
  Watched found{};
  {
    Watch& all = watch();
    // A handler of the application's for forks runs while its thread has the lock.
    std::shared_lock lock(all.mutex, std::defer_lock);
    if (forked_from == 0) lock.lock();
    const auto after = all.ranges.upper_bound(address);
    if (after == all.ranges.begin()) return false;
    const auto& [base, watched] = *std::prev(after);
    if (address - base >= watched.bytes) return false;
    if (all.forked || (forked_from != 0 && forked_from != ::getpid())) {
      say("is the parent's: a forked process has none of it", address);
      return false;
    }
    found = watched;
  }
  switch (found.memory->touch(address, write)) {
    case ManagedMemory::Touched::kServed:
      return true;
    case ManagedMemory::Touched::kUnknown:
      say("is not allocated", address);
      return false;
    case ManagedMemory::Touched::kNeedsService:
      break;
  }
  const CUresult result = found.service->ask(address, write);
  if (result == CUDA_SUCCESS) return true;
  // Another thread ends the process, which must not end by this access instead.
  if (result == CUDA_ERROR_DEINITIALIZED) std::this_thread::sleep_for(kEndOfProcess);
  char why[64];
  std::snprintf(why, sizeof why, "cannot be fetched: error %d", static_cast<int>(result));
  say(why, address);
  return false;
}

// The access is repeated and ends the process where it happened.
void end_by_default(const siginfo_t* info) {
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGSEGV, &usual, nullptr);
  if (info->si_code <= 0) ::raise(SIGSEGV);  // sent, not an access
}

// A handler of the application that was installed after ours may call ours for what is not its own.
// It may also leave by siglongjmp; so a fault is known by its context, and by where the call for it
// lies on the stack: a call from that handler lies below.
struct Passing {
  const void* context = nullptr;
  uintptr_t frame = 0;
};
thread_local Passing passing;

// What the system would block while that handler runs. The system itself restores the rest.
void block_as_it_wants(const ucontext_t& interrupted) {
  sigset_t blocked;
  ::sigorset(&blocked, &interrupted.uc_sigmask, &before.sa_mask);
  if ((before.sa_flags & SA_NODEFER) == 0) ::sigaddset(&blocked, SIGSEGV);
  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (passing.context == context && frame < passing.frame) return end_by_default(info);
  const bool is_handler = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;  // sent, not an access
  if (!is_handler || ((before.sa_flags & SA_RESETHAND) != 0 && was_passed.exchange(true)))
    return end_by_default(info);
  const Passing outer = std::exchange(passing, {context, frame});
  block_as_it_wants(*static_cast<const ucontext_t*>(context));
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  passing = outer;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const auto& cause = *static_cast<const ucontext_t*>(context);
  const bool served = info->si_code > 0 && !is_fetch(cause) && serve(address, is_write(cause));
  if (!served) pass_on(signal, info, context);
  errno = error;
}

void install_before(const struct sigaction& now) {
  before = now;
  was_passed.store(false);
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  // A thread may have run out of its own stack.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&ours.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) ::sigdelset(&ours.sa_mask, number);
  ::sigaction(SIGSEGV, &ours, nullptr);
}

// Without install_mutex, which another thread may have held.
void install_in_child() {
  struct sigaction now = {};
  if (::sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) install_before(now);
}

}  // namespace

void install_fault_handler() {
  std::lock_guard lock(install_mutex);
  struct sigaction now = {};
  if (::sigaction(SIGSEGV, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) return;
  install_before(now);
}

void watch_faults(uint64_t address, uint64_t bytes, ManagedMemory& memory, FaultService& service) {
  Watch& all = watch();
  std::lock_guard lock(all.mutex);
  all.ranges.insert_or_assign(address, Watched{bytes, &memory, &service});
}

void unwatch_faults(uint64_t address) {
  Watch& all = watch();
  std::lock_guard lock(all.mutex);
  all.ranges.erase(address);
}

}  // namespace fargpu::client
