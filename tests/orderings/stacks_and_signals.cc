// Memory that device code uses has the stack of a thread that makes CUDA calls, of a fiber, or of
// handlers of signals, or such handlers touch it. Where it is fetched on access they do that while
// their thread is in no call.
// again: FARGPU_MAPPED=eager
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <csignal>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20, kBytes = 2 * kMiB;

CUcontext context;
CUfunction store, load, spin;
CUdeviceptr seen;

enum class Kind { kRegistered, kPinned, kManaged };

struct Memory {
  explicit Memory(Kind which) : kind(which) {
    if (kind == Kind::kRegistered) {
      void* const made =
          ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      HOLDS(made != MAP_FAILED);
      bytes = static_cast<char*>(made);
      std::memset(bytes, 0, kBytes);
    } else if (kind == Kind::kPinned) {
      void* made = nullptr;
      CU(cuMemHostAlloc(&made, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
      bytes = static_cast<char*>(made);
    } else {
      CUdeviceptr made = 0;
      CU(cuMemAllocManaged(&made, kBytes, CU_MEM_ATTACH_GLOBAL));
      bytes = reinterpret_cast<char*>(made);
    }
  }
  void enroll() const {
    if (kind == Kind::kRegistered)
      CU(cuMemHostRegister(bytes, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  }
  void end() const {
    if (kind == Kind::kRegistered) {
      CU(cuMemHostUnregister(bytes));
      ::munmap(bytes, kBytes);
    } else if (kind == Kind::kPinned) {
      CU(cuMemFreeHost(bytes));
    } else {
      CU(cuMemFree(reinterpret_cast<CUdeviceptr>(bytes)));
    }
  }
  int& word(size_t at) const { return *reinterpret_cast<int*>(bytes + at); }
  CUdeviceptr device(size_t at) const { return reinterpret_cast<CUdeviceptr>(bytes + at); }

  Kind kind;
  char* bytes = nullptr;
};

// What a thread does whose stack is in the upper half.
struct Calls {
  const Memory& memory;
  int first;
};
void* make_calls(void* argument) {
  const Calls calls = *static_cast<Calls*>(argument);
  CU(cuCtxSetCurrent(context));
  volatile int on_stack = 0;
  for (int i = calls.first; i < calls.first + 20; ++i) {
    on_stack = i;
    CU(launch(store, nullptr, calls.memory.device(0), i));
    CU(cuCtxSynchronize());
    HOLDS(calls.memory.word(0) == i && on_stack == i);
    calls.memory.word(4) = i;
    int back = 0;
    CU(launch(load, nullptr, seen, calls.memory.device(4)));
    CU(cuMemcpyDtoH(&back, seen, sizeof back));
    HOLDS(back == i);
  }
  return nullptr;
}

pthread_t start_on(const Memory& memory, void* (*function)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  HOLDS(pthread_attr_setstack(&attributes, memory.bytes + kMiB, kMiB) == 0);
  pthread_t made;
  HOLDS(pthread_create(&made, &attributes, function, argument) == 0);
  pthread_attr_destroy(&attributes);
  return made;
}

void stack_of_a_thread(Kind kind) {
  const Memory memory(kind);
  memory.enroll();
  CU(launch(store, nullptr, memory.device(0), -1));
  CU(cuCtxSynchronize());
  Calls calls{memory, 1};
  pthread_join(start_on(memory, make_calls, &calls), nullptr);
  Calls more{memory, 100};
  make_calls(&more);
  memory.end();
}

// The memory is registered while the thread is in a call.
struct Waiting {
  const Memory& memory;
  std::atomic<int> calls{0};
  std::atomic<bool> over{false};
};
void* keep_calling(void* argument) {
  Waiting& waiting = *static_cast<Waiting*>(argument);
  CU(cuCtxSetCurrent(context));
  while (!waiting.over) {
    CU(launch(spin, nullptr, 2000u));
    CU(cuCtxSynchronize());
    ++waiting.calls;
  }
  return nullptr;
}
void stack_registered_later() {
  const Memory memory(Kind::kRegistered);
  Waiting waiting{memory};
  const pthread_t thread = start_on(memory, keep_calling, &waiting);
  while (waiting.calls < 3) {
  }
  memory.enroll();
  Calls calls{memory, 1};
  make_calls(&calls);
  waiting.over = true;
  pthread_join(thread, nullptr);
  memory.end();
}

ucontext_t outside, inside;
const Memory* fiber_memory;
void fiber() {
  Calls calls{*fiber_memory, 1};
  make_calls(&calls);
  swapcontext(&inside, &outside);
}
void stack_of_a_fiber(Kind kind) {
  const Memory memory(kind);
  memory.enroll();
  Calls calls{memory, 1};
  make_calls(&calls);
  fiber_memory = &memory;
  getcontext(&inside);
  inside.uc_stack.ss_sp = memory.bytes + kMiB;
  inside.uc_stack.ss_size = kMiB;
  makecontext(&inside, fiber, 0);
  swapcontext(&outside, &inside);
  memory.end();
}

const Memory* volatile touched = nullptr;
volatile sig_atomic_t signals_taken = 0;
void on_signal(int) {
  if (touched != nullptr) ++touched->word(64);
  signals_taken = signals_taken + 1;
}
// The thread takes signals while its stack for them is in the memory, or while their handler
// touches it.
void signals(Kind kind, bool on_memory, bool in_calls) {
  const Memory memory(kind);
  memory.enroll();
  touched = on_memory ? nullptr : &memory;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | (on_memory ? SA_ONSTACK : 0);
  HOLDS(sigaction(SIGUSR1, &action, nullptr) == 0);
  stack_t other = {}, before = {};
  other.ss_sp = memory.bytes + kMiB;
  other.ss_size = kMiB;
  if (on_memory) HOLDS(sigaltstack(&other, &before) == 0);
  timer_t timer;
  struct sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = gettid();
  HOLDS(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  const struct itimerspec often = {{0, 1'370'000}, {0, 1'370'000}}, never = {};
  signals_taken = 0;
  if (in_calls) timer_settime(timer, 0, &often, nullptr);
  for (int i = 1; signals_taken < 50; ++i) {
    CU(launch(store, nullptr, memory.device(0), i));
    CU(cuCtxSynchronize());
    if (!in_calls) raise(SIGUSR1);
    HOLDS(memory.word(0) == i);
  }
  timer_settime(timer, 0, &never, nullptr);
  timer_delete(timer);
  if (!on_memory) HOLDS(memory.word(64) == signals_taken);
  if (on_memory) {
    before.ss_flags |= before.ss_sp == nullptr ? SS_DISABLE : 0;
    sigaltstack(&before, nullptr);
  }
  touched = nullptr;
  memory.end();
}

}  // namespace

// An argument: as with FARGPU_MAPPED=eager.
int main(int argc, char**) {
  begin(100);
  context = use_primary();
  const CUmodule module = load_kernels();
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  spin = kernel_of(module, "spin");
  seen = device_memory(64);
  const char* const mode = getenv("FARGPU_MAPPED");
  const bool is_eager = mode != nullptr && std::strcmp(mode, "eager") == 0;
  step("the stack of a thread, registered while it is in calls");
  stack_registered_later();
  for (const Kind kind : {Kind::kRegistered, Kind::kPinned}) {
    step("the stack of a thread");
    stack_of_a_thread(kind);
    step("the stack of a fiber");
    stack_of_a_fiber(kind);
    step("a stack for signals");
    signals(kind, true, false);
    step("a stack for signals in calls");
    signals(kind, true, true);
    step("a handler that touches memory in a call");
    if (is_eager || argc > 1) signals(kind, false, true);
  }
  step("a handler that touches memory");
  for (const Kind kind : {Kind::kRegistered, Kind::kPinned, Kind::kManaged})
    signals(kind, false, false);
  right();
}
