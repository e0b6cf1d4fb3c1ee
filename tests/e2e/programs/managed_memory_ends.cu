// Managed memory that a kernel has written and nobody has looked at, when something ends:
//   exit     the process ends while threads wait for it, one of them in a system call
//   lost     a line on stdin comes, and then it is read; with `lost write` by write(2)
//   fork     a child reads it, and then the parent
//   blocked  a thread that has blocked SIGSEGV reads it
//   error    write(2) of it, behind an error of a kernel that ends the context
//   handler  whether the process has a handler of SIGSEGV
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <shared_mutex>
#include <thread>

#include "expect.h"

static constexpr size_t kCount = 1 << 20;
static int* memory;

__global__ void number(int* to, size_t count) {
  const size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (at < count) to[at] = static_cast<int>(at) + 1;
}
__global__ void fail(int* nowhere) { *nowhere = 1; }

static void say(const char* line) {
  std::printf("%s\n", line);
  std::fflush(stdout);
}

static void look() {
  for (size_t at = 0; at < kCount; at += 1000) EXPECT(memory[at] == static_cast<int>(at) + 1);
  say("seen");
}

static void write_it() {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const ssize_t written = write(ends[1], memory + kCount / 2, 4);
  std::printf("write: %s\n", written < 0 ? std::strerror(errno) : "done");
  std::fflush(stdout);
}

// The runtime that is linked into the program crashes in calls that are made while it ends. So
// nobody calls it then; accesses go on.
static std::shared_mutex& calls = *new std::shared_mutex;
static std::atomic<bool> over{false};

static void end_beside_accesses() {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  for (int i = 0; i < 4; ++i) {
    std::thread([=] {
      for (size_t round = 0;; ++round) {
        if (!over) {
          std::shared_lock lock(calls);
          number<<<kCount / 256, 256>>>(memory, kCount);
          if (cudaDeviceSynchronize() != cudaSuccess) pause();
        }
        if (i == 0) (void)!write(ends[1], memory + round % kCount, 4);
        volatile int value = memory[round * 5000 % kCount];
        (void)value;
        char read_back[4];
        if (i == 0) (void)!read(ends[0], read_back, 4);
      }
    }).detach();
  }
  usleep(100'000);
  over = true;
  calls.lock();
}

static void fork_and_look() {
  const pid_t child = fork();
  if (child == 0) _exit(memory[5] == 6 ? 0 : 1);
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  std::printf("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  look();
}

int main(int count, char** values) {
  EXPECT(count >= 2);
  const auto is = [values](const char* way) { return std::strcmp(values[1], way) == 0; };
  CHECK(cudaMallocManaged(&memory, kCount * sizeof(int)));
  number<<<kCount / 256, 256>>>(memory, kCount);
  CHECK(cudaDeviceSynchronize());
  say("ready");
  if (is("exit")) {
    end_beside_accesses();
  } else if (is("lost")) {
    (void)std::getchar();
    if (count > 2)
      write_it();
    else
      look();
  } else if (is("fork")) {
    fork_and_look();
  } else if (is("blocked")) {
    std::thread([] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      look();
    }).join();
  } else if (is("error")) {
    fail<<<1, 1>>>(nullptr);
    EXPECT(cudaDeviceSynchronize() != cudaSuccess);
    write_it();
  } else if (is("handler")) {
    struct sigaction now = {};
    EXPECT(sigaction(SIGSEGV, nullptr, &now) == 0);
    say(now.sa_handler == SIG_DFL ? "none" : "one");
  }
  return 0;
}
