// Handlers of SIGSEGV and managed memory: each fault reaches who it is for. The program's own
// handler is there before the first allocation.
#include <setjmp.h>

#include <atomic>
#include <thread>

#include "tests/conformance/in_child.h"
#include "tests/conformance/kernels.h"

namespace {

CUfunction fill_words;

unsigned* managed(size_t words) {
  CUdeviceptr p = 0;
  NEED(cuMemAllocManaged(&p, words * sizeof(unsigned), CU_MEM_ATTACH_GLOBAL));
  return reinterpret_cast<unsigned*>(p);
}

// By a kernel, so that the next access of the host faults.
void fill(unsigned* to, unsigned value, unsigned n) {
  auto p = reinterpret_cast<CUdeviceptr>(to);
  void* parameters[] = {&p, &value, &n};
  NEED(cuLaunchKernel(fill_words, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters,
                      nullptr));
  NEED(cuCtxSynchronize());
}

void install(void (*handler)(int), int flags, std::initializer_list<int> blocked = {}) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigemptyset(&action.sa_mask);
  for (const int number : blocked) ::sigaddset(&action.sa_mask, number);
  ::sigaction(SIGSEGV, &action, nullptr);
}

// Managed memory whose contents are on the device.
unsigned* begin() {
  make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill_words, module, "fill"));
  unsigned* const words = managed(4096);
  words[0] = 1;
  fill(words, 2, 1024);
  return words;
}

void access_nothing() {
  static volatile uintptr_t nowhere = 16;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

sigjmp_buf place;
volatile int hits = 0;
void leave(int) {
  hits = hits + 1;
  siglongjmp(place, 1);
}

void leaves_by_jumps() {
  install(leave, 0);
  const unsigned* const words = begin();
  for (int i = 0; i < 3; ++i) {
    if (sigsetjmp(place, 1) == 0) access_nothing();
  }
  VALUE(hits);
  VALUE(words[0]);
}

void jump_into_memory() {
  install(leave, 0);
  unsigned* const words = begin();
  words[0] = 0xc3c3c3c3;  // returns
  if (sigsetjmp(place, 1) == 0) {
    reinterpret_cast<void (*)()>(words)();
    std::printf("it was executed\n");
  }
  VALUE(hits);
}

void is_for_one_fault() {
  install([](int) { (void)!::write(STDOUT_FILENO, "handled\n", 8); }, SA_RESETHAND);
  VALUE(begin()[0]);
  access_nothing();
}

void is_ignored() {
  ::signal(SIGSEGV, SIG_IGN);
  const unsigned* const words = begin();
  ::kill(::getpid(), SIGSEGV);
  ::usleep(1000);
  VALUE(words[0]);
  access_nothing();
}

void is_not_handled() {
  VALUE(begin()[0]);
  access_nothing();
}

sigset_t during;
void look(int) {
  ::pthread_sigmask(SIG_BLOCK, nullptr, &during);
  siglongjmp(place, 1);
}

void what_is_blocked(int flags) {
  install(look, flags, {SIGUSR1, SIGINT});
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, SIGWINCH);
  ::pthread_sigmask(SIG_BLOCK, &own, nullptr);
  VALUE(begin()[0]);
  if (sigsetjmp(place, 1) == 0) access_nothing();
  for (const int number : {SIGSEGV, SIGUSR1, SIGINT, SIGWINCH, SIGUSR2, SIGTERM})
    VALUE(::sigismember(&during, number));
  ::pthread_sigmask(SIG_BLOCK, nullptr, &own);
  VALUE(::sigismember(&own, SIGWINCH));
  VALUE(::sigismember(&own, SIGUSR1));
}

// A handler of another signal uses managed memory, also while accesses of its thread wait.
unsigned* counted = nullptr;
volatile int ticks = 0;
void count(int) {
  ++counted[0];
  ticks = ticks + 1;
}

void other_handlers() {
  unsigned* const words = begin();
  counted = managed(1024);
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  const pthread_t main_thread = ::pthread_self();
  ::signal(SIGUSR1, count);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  for (int round = 0; round < 200; ++round) {
    // No handler runs inside a call.
    ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    fill(words, 3, 4096);
    std::thread([&] { ::pthread_kill(main_thread, SIGUSR1); }).detach();
    ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
    unsigned sum = 0;
    for (unsigned i = 0; i < 4096; i += 64) sum += words[i];
    while (ticks <= round) ::usleep(10);
    if (sum != 64 * 3 || counted[0] != static_cast<unsigned>(ticks)) std::printf("wrong\n");
  }
  VALUE(ticks);
}

void exit_beside_accesses() {
  CUcontext context;
  unsigned* const words = begin();
  NEED(cuCtxGetCurrent(&context));
  std::thread([=] {
    (void)cuCtxSetCurrent(context);
    volatile unsigned sum = 0;
    for (;;) {
      auto p = reinterpret_cast<CUdeviceptr>(words);
      unsigned value = 1, n = 1024;
      void* parameters[] = {&p, &value, &n};
      if (cuLaunchKernel(fill_words, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr) !=
              CUDA_SUCCESS ||
          cuCtxSynchronize() != CUDA_SUCCESS)
        ::pause();
      for (unsigned i = 0; i < 1024; i += 64) sum = sum + words[i];
    }
  }).detach();
  ::usleep(100'000);
}

// Handlers for forks that were there before the first allocation, so that they run inside of the
// library's.
const unsigned* beside_forks = nullptr;
volatile unsigned seen_before = 0, seen_after = 0;

void handlers_of_forks() {
  ::pthread_atfork([] { seen_before = beside_forks[0]; }, [] { seen_after = beside_forks[2048]; },
                   nullptr);
  unsigned* const words = begin();
  fill(words, 4, 4096);
  beside_forks = words;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  VALUE(status);
  VALUE(seen_before);
  VALUE(seen_after);
}

// Children that are made while other threads allocate have none of the memory, and end all the
// same.
void forks_beside_allocations() {
  const unsigned* const words = begin();
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  std::atomic<bool> stop{false};
  std::thread other([&] {
    NEED(cuCtxSetCurrent(context));
    while (!stop) {
      unsigned* const own = managed(1 << 20);
      own[0] = 1;
      NEED(cuMemFree(reinterpret_cast<CUdeviceptr>(own)));
    }
  });
  int by_signal = 0;
  for (int i = 0; i < 40; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
      ::_exit(words[0] == 2 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    by_signal += WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
  }
  stop = true;
  other.join();
  VALUE(by_signal);
  VALUE(words[0]);
}

}  // namespace

int main() {
  in_child("a handler that leaves by jumps", leaves_by_jumps);
  in_child("a jump into managed memory", jump_into_memory);
  in_child("a handler for one fault", is_for_one_fault);
  in_child("an ignored signal", is_ignored);
  in_child("no handler", is_not_handled);
  in_child("what is blocked", [] { what_is_blocked(0); });
  in_child("what is blocked: SA_NODEFER", [] { what_is_blocked(SA_NODEFER); });
  in_child("handlers of other signals", other_handlers);
  in_child("exit beside accesses", exit_beside_accesses);
  in_child("forks beside allocations", forks_beside_allocations);
  in_child("handlers of forks", handlers_of_forks);
  return 0;
}
