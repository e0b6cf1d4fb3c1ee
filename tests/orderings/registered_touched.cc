// Registered memory of which most is not touched: what the host and kernels write is right whatever
// else the program does with the memory meanwhile.
// again: FARGPU_MAPPED=eager
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kPage = 4096, kMiB = size_t{1} << 20, kBytes = 8 * kMiB;

CUfunction store, load;
CUdeviceptr seen;

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
int& word(char* memory, size_t offset) { return *reinterpret_cast<int*>(memory + offset); }

void kernel_stores(char* memory, size_t offset, int value) {
  CU(launch(store, nullptr, address(memory + offset), value));
}
int kernel_reads(char* memory, size_t offset) {
  int back = 0;
  CU(launch(load, nullptr, seen, address(memory + offset)));
  CU(cuMemcpyDtoH(&back, seen, sizeof back));
  return back;
}

char* map_pages(size_t bytes = kBytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HOLDS(memory != MAP_FAILED);
  return static_cast<char*>(memory);
}

// Registered, with numbers of its own in each page, and used by a kernel: 7 at kMiB.
void enroll(char* memory, size_t bytes = kBytes) {
  for (size_t at = 0; at + kPage <= bytes; at += kPage) word(memory, at) = static_cast<int>(at);
  CU(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  kernel_stores(memory, kMiB, 7);
  CU(cuCtxSynchronize());
}
char* enrolled() {
  char* const memory = map_pages();
  enroll(memory);
  return memory;
}
void check(char* memory, size_t from = 0, size_t until = kBytes) {
  for (size_t at = from; at + kPage <= until; at += kPage) {
    const int expected = at == kMiB ? 7 : static_cast<int>(at);
    if (word(memory, at) != expected) wrong("%s: %d at 0x%zx", current_step, word(memory, at), at);
  }
}
void end(char* memory) {
  CU(cuMemHostUnregister(memory));
  check(memory);
  ::munmap(memory, kBytes);
}

void edges_stay_the_applications() {
  step("bytes beside the range");
  char* const memory = map_pages();
  char *const begin = memory + 100, *const last = memory + kBytes - 200;
  std::memset(memory, 1, kBytes);
  CU(cuMemHostRegister(begin, kBytes - 300, CU_MEMHOSTREGISTER_DEVICEMAP));
  for (char round = 2; round < 20; ++round) {
    begin[-1] = last[0] = round;
    kernel_stores(begin, 0, round * 3);
    kernel_stores(last - 4, 0, round * 5);
    kernel_stores(begin, 3 * kMiB, round * 7);
    CU(cuCtxSynchronize());
    HOLDS(word(begin, 0) == round * 3 && word(last - 4, 0) == round * 5);
    HOLDS(begin[-1] == round && last[0] == round && begin[4] == 1 && last[-5] == 1);
    if (round % 2 == 0) HOLDS(word(begin, 3 * kMiB) == round * 7);
    word(begin, 8) = round;
    HOLDS(kernel_reads(begin, 8) == round);
  }
  CU(cuMemHostUnregister(begin));
  HOLDS(word(begin, 3 * kMiB) == 19 * 7 && begin[-1] == 19 && last[0] == 19);
  ::munmap(memory, kBytes);
}

void no_write_is_lost() {
  step("threads write while kernels do");
  constexpr unsigned kThreads = 3, kRounds = 150;
  char* const memory = enrolled();
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  std::array<long, kThreads> counts{};
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      while (!over) {
        const size_t page = static_cast<size_t>(counts[i] % 64) * 16 * kPage;
        ++std::atomic_ref(*reinterpret_cast<int*>(memory + page + 16 + 4 * i));
        ++counts[i];
      }
    });
  }
  for (unsigned round = 1; round <= kRounds; ++round) {
    kernel_stores(memory, 5 * kPage * 16 + 64, static_cast<int>(round));
    CU(cuCtxSynchronize());
    HOLDS(word(memory, 5 * kPage * 16 + 64) == static_cast<int>(round));
  }
  over = true;
  for (std::thread& each : threads) each.join();
  for (unsigned i = 0; i < kThreads; ++i) {
    long total = 0;
    for (size_t page = 0; page < 64; ++page) {
      const size_t at = page * 16 * kPage + 16 + 4 * i;
      total += word(memory, at);
      if (page == 3) HOLDS(kernel_reads(memory, at) == word(memory, at));
    }
    if (total != counts[i]) wrong("thread %u has counted to %ld, not %ld", i, total, counts[i]);
  }
  end(memory);
}

void system_calls_wait() {
  step("system calls");
  char* const memory = enrolled();
  int ends[2];
  HOLDS(::pipe(ends) == 0);
  HOLDS(::write(ends[1], memory + kMiB, 4) == 4);
  HOLDS(::read(ends[0], memory + 2 * kMiB + 4, 4) == 4);
  HOLDS(word(memory, 2 * kMiB + 4) == 7 && kernel_reads(memory, 2 * kMiB + 4) == 7);
  ::close(ends[0]);
  ::close(ends[1]);
  end(memory);
}

int status_of(pid_t child) {
  int status = 0;
  HOLDS(::waitpid(child, &status, 0) == child);
  return status;
}

void children() {
  step("a child of fork");
  char* const memory = enrolled();
  const auto child = [&] {
    for (size_t at = 0; at < kBytes; at += kPage)
      if (word(memory, at) != (at == kMiB ? 7 : static_cast<int>(at))) _exit(1);
    word(memory, 0) = -1;
    _exit(0);
  };
  pid_t made = ::fork();
  if (made == 0) child();
  const int status = status_of(made);
  HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check(memory);
  kernel_stores(memory, 2 * kMiB + 4, 8);
  CU(cuCtxSynchronize());
  HOLDS(word(memory, 2 * kMiB + 4) == 8);

  step("a child that the system makes past fork()");
  made = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (made == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    child();
  }
  const int other = status_of(made);
  HOLDS(WIFSIGNALED(other) || WEXITSTATUS(other) == 0);
  end(memory);
}

void other_work() {
  kernel_stores(reinterpret_cast<char*>(seen), 4, 1);
  CU(cuCtxSynchronize());
}

void unmapped() {
  step("unmapped, and other memory comes to the address");
  char* const memory = enrolled();
  ::munmap(memory + 2 * kMiB, 2 * kMiB);
  other_work();
  void* const again = ::mmap(memory + 2 * kMiB, 2 * kMiB, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  HOLDS(again != MAP_FAILED);
  word(memory, 2 * kMiB) = 55;
  for (int i = 0; i < 3; ++i) other_work();
  HOLDS(word(memory, 2 * kMiB) == 55 && word(memory, 2 * kMiB + kPage) == 0);
  check(memory, 0, 2 * kMiB);
  (void)cuMemHostUnregister(memory);
  HOLDS(word(memory, 2 * kMiB) == 55 && word(memory, 2 * kMiB + kPage) == 0);
  check(memory, 0, 2 * kMiB);
  check(memory, 4 * kMiB);
  ::munmap(memory, kBytes);
}

void moved() {
  step("moved to another address, and a child of fork at once");
  for (int i = 0; i < 10; ++i) {
    char* const memory = enrolled();
    void* const there = ::mremap(memory, kBytes, 2 * kBytes, MREMAP_MAYMOVE, nullptr);
    HOLDS(there != MAP_FAILED);
    char* const now = static_cast<char*>(there);
    const pid_t made = ::fork();
    if (made == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      check(now);
      _exit(0);
    }
    const int status = status_of(made);
    HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check(now);
    (void)cuMemHostUnregister(memory);
    check(now);
    ::munmap(now, 2 * kBytes);
  }

  step("moved to another address");
  char* const memory = enrolled();
  void* const there = ::mremap(memory, kBytes, 2 * kBytes, MREMAP_MAYMOVE, nullptr);
  HOLDS(there != MAP_FAILED);
  char* const now = static_cast<char*>(there);
  HOLDS(word(now, kBytes + kPage) == 0);
  check(now);
  other_work();
  check(now);
  (void)cuMemHostUnregister(memory);
  check(now);
  ::munmap(now, 2 * kBytes);
}

char* move(char* from, size_t bytes, char* to) {
  void* const there = ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  HOLDS(there == to);
  return to;
}

void moved_again() {
  for (int round = 0; round < 4; ++round) {
    char* const memory = enrolled();
    char *const first = map_pages(2 * kBytes), *const second = map_pages(2 * kBytes);
    if (round % 2 == 0) {
      step("moved to another address, and from there to a third one");
      check(move(move(memory, kBytes, first), kBytes, second));
    } else {
      step("moved apart, in many parts");
      constexpr size_t kPart = kBytes / 64;
      for (size_t at = 0; at < kBytes; at += kPart) move(memory + at, kPart, second + 2 * at);
      for (size_t at = 0; at < kBytes; at += kPart) move(second + 2 * at, kPart, first + at);
      check(first);
    }
    char* const now = round % 2 == 0 ? second : first;
    (void)cuMemHostUnregister(memory);
    check(now);
    ::munmap(first, 2 * kBytes);
    ::munmap(second, 2 * kBytes);
  }
  step("moved to another address, and emptied there");
  for (int round = 0; round < 10; ++round) {
    char *const memory = enrolled(), *const now = move(memory, kBytes, map_pages(kBytes));
    HOLDS(::madvise(now, kBytes / 2, MADV_DONTNEED) == 0);
    for (size_t at = 0; at < kBytes / 2; at += kPage) HOLDS(word(now, at) == 0);
    check(now, kBytes / 2);
    (void)cuMemHostUnregister(memory);
    ::munmap(now, kBytes);
  }
}

void emptied() {
  step("emptied");
  char* const memory = enrolled();
  HOLDS(::madvise(memory + 2 * kMiB, kMiB, MADV_DONTNEED) == 0);
  HOLDS(word(memory, 2 * kMiB) == 0 && word(memory, 3 * kMiB - kPage) == 0);
  other_work();
  HOLDS(::madvise(memory + 2 * kMiB, kMiB, MADV_DONTNEED) == 0);
  for (int i = 0; i < 3; ++i) other_work();
  for (size_t at = 2 * kMiB; at < 3 * kMiB; at += kPage) HOLDS(word(memory, at) == 0);
  check(memory, 0, 2 * kMiB);
  CU(cuMemHostUnregister(memory));
  check(memory, 3 * kMiB);
  ::munmap(memory, kBytes);
}

void protected_and_locked() {
  step("protected");
  char* const memory = enrolled();
  HOLDS(::mprotect(memory, 2 * kMiB, PROT_READ) == 0);
  check(memory, 0, 2 * kMiB);
  HOLDS(::mprotect(memory + 4 * kMiB, kMiB, PROT_NONE) == 0);
  kernel_stores(memory, 5 * kMiB + 4, 1);
  CU(cuCtxSynchronize());
  HOLDS(::mprotect(memory, kBytes, PROT_READ | PROT_WRITE) == 0);
  check(memory);
  HOLDS(word(memory, 5 * kMiB + 4) == 1);
  step("locked");
  kernel_stores(memory, 6 * kMiB + 4, 3);
  CU(cuCtxSynchronize());
  if (::mlock(memory + 6 * kMiB, kMiB) != 0) note("nothing may be locked here");
  for (int i = 4; i < 8; ++i) {
    HOLDS(word(memory, 6 * kMiB + 4) == i - 1);
    kernel_stores(memory, 6 * kMiB + 4, i);
    CU(cuCtxSynchronize());
  }
  end(memory);
}

// Each is used as it is, whether it can be moved or not.
void other_kinds() {
  const auto use = [](const char* what, char* memory) {
    step(what);
    enroll(memory, 2 * kMiB);
    for (int round = 0; round < 5; ++round) {
      kernel_stores(memory, kMiB + 4, round);
      CU(cuCtxSynchronize());
      HOLDS(word(memory, kMiB + 4) == round);
      word(memory, 20) = round;
      HOLDS(kernel_reads(memory, 20) == round);
    }
    CU(cuMemHostUnregister(memory));
    check(memory, 0, 2 * kMiB);
  };
  const int file = ::memfd_create("registered", 0);
  HOLDS(file >= 0 && ::ftruncate(file, 2 * kMiB) == 0);
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    void* const memory = ::mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, flags, file, 0);
    HOLDS(memory != MAP_FAILED);
    use("a file", static_cast<char*>(memory));
  }
  alignas(kPage) char on_stack[2 * kMiB];
  use("a stack", on_stack);
  std::thread([&use] {
    alignas(kPage) char on_its_stack[2 * kMiB];
    CU(cuCtxSetCurrent(use_primary()));
    use("a thread's stack", on_its_stack);
  }).join();
  const auto allocated = std::make_unique<char[]>(3 * kMiB);
  use("allocated memory", allocated.get() + (kPage - address(allocated.get()) % kPage));
  char* const large = map_pages(8 * kMiB);
  ::madvise(large, 8 * kMiB, MADV_HUGEPAGE);
  use("huge pages", large);
  const int faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  struct uffdio_api api = {};
  api.api = UFFD_API;
  if (faults < 0 || ::ioctl(faults, UFFDIO_API, &api) != 0) return note("no userfaultfd here");
  char* const watched = map_pages(2 * kMiB);
  std::memset(watched, 0, 2 * kMiB);
  struct uffdio_register range = {};
  range.range = {address(watched), 2 * kMiB};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  HOLDS(::ioctl(faults, UFFDIO_REGISTER, &range) == 0);
  use("memory whose faults the program serves", watched);
}

void contexts_end() {
  step("the end of a context");
  const CUcontext before = use_primary();
  const CUcontext context = new_context();
  CUdeviceptr own = device_memory(16);
  char* const memory = map_pages();
  for (size_t at = 0; at < kBytes; at += kPage) word(memory, at) = static_cast<int>(at);
  CU(cuMemHostRegister(memory, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  CU(cuMemsetD32(address(memory + kMiB), 7, 1));
  CU(cuMemcpyDtoD(own, address(memory + kMiB), 4));
  CU(cuCtxSynchronize());
  CU(cuCtxDestroy(context));
  check(memory);
  CU(cuCtxSetCurrent(before));
}

}  // namespace

int main() {
  begin(200);
  use_primary();
  const CUmodule module = load_kernels();
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  seen = device_memory(64);
  edges_stay_the_applications();
  no_write_is_lost();
  system_calls_wait();
  children();
  unmapped();
  moved();
  moved_again();
  emptied();
  protected_and_locked();
  other_kinds();
  contexts_end();
  step("closed at the end of the process");
  (void)enrolled();
  right();
}
