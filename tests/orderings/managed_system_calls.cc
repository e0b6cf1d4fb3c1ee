// System calls use managed memory that kernels have written, that is here in part, or that was only
// read so far: files, pipes, sockets, another process's way (process_vm_readv). So do threads that
// have blocked SIGSEGV, several at once, with kernels in between.
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"
#include "tests/orderings/served_faults.h"

namespace {

constexpr size_t kBytes = 4 << 20, kWords = kBytes / sizeof(int), kPage = 4096;
constexpr size_t kStride = 64;  // words between those that kernels write

CUfunction store_strided, load;

// Memory of one stream, so that threads need not wait for each other's work.
struct Memory {
  explicit Memory(CUstream own) : stream(own) {
    CU(cuMemAllocManaged(&device, kBytes, CU_MEM_ATTACH_HOST));
    CU(cuStreamAttachMemAsync(stream, device, 0, CU_MEM_ATTACH_SINGLE));
    CU(cuStreamSynchronize(stream));
    words = reinterpret_cast<int*>(device);
  }
  // A kernel numbers every so-manieth word, from `first` on.
  void number(int first) const {
    CUdeviceptr to = device;
    unsigned count = kWords / kStride, stride = kStride;
    void* parameters[] = {&to, &count, &stride, &first};
    CU(cuLaunchKernel(store_strided, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
    CU(cuStreamSynchronize(stream));
  }
  // What a kernel reads there.
  int read(size_t at) const {
    CU(launch(load, stream, seen, device + at * sizeof(int)));
    int value = 0;
    CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, stream));
    CU(cuStreamSynchronize(stream));
    return value;
  }

  CUstream stream;
  CUdeviceptr device = 0;
  CUdeviceptr seen = device_memory(sizeof(int));
  int* words = nullptr;
};

int numbered(int first, size_t at) { return first + static_cast<int>(at / kStride); }

void check_numbers(const int* got, size_t begin, size_t end, int first, const char* what) {
  for (size_t at = (begin + kStride - 1) / kStride * kStride; at < end; at += kStride)
    if (got[at - begin] != numbered(first, at))
      wrong("%s: word %zu is %d, not %d", what, at, got[at - begin], numbered(first, at));
}

int file_of_memory() {
  char name[] = "./managed_system_calls.XXXXXX";
  int file = ::mkstemp(name);
  if (file >= 0) ::unlink(name);
  if (file < 0) file = ::memfd_create("managed_system_calls", 0);  // this folder is read only
  HOLDS(file >= 0);
  return file;
}

void before_kernels(int file) {
  step("new memory");
  const Memory memory(make_stream());
  std::vector<int> numbers(kWords);
  for (size_t at = 0; at < kWords; ++at) numbers[at] = static_cast<int>(at) + 3;
  HOLDS(::pwrite(file, numbers.data(), kBytes, 0) == kBytes);
  HOLDS(::pread(file, memory.words, kBytes, 0) == kBytes);
  HOLDS(memory.read(5) == 8);
  HOLDS(memory.read(kWords - 1) == static_cast<int>(kWords) + 2);
}

void files(const Memory& memory, int file, int first) {
  std::vector<int> back(kWords);
  memory.number(first);
  HOLDS(::pwrite(file, memory.words, kBytes, 0) == kBytes);
  HOLDS(::pread(file, back.data(), kBytes, 0) == kBytes);
  check_numbers(back.data(), 0, kWords, first, "a file has");
  // Partly here: some pages were read, some written.
  memory.number(first + 1);
  HOLDS(memory.words[kWords / 2] == numbered(first + 1, kWords / 2));
  memory.words[kWords / 4 + 1] = 77;
  for (int& word : back) word = first;
  HOLDS(::pwrite(file, back.data(), kBytes, 0) == kBytes);
  HOLDS(::pread(file, memory.words, kBytes, 0) == kBytes);
  for (const size_t at : {size_t{0}, kWords / 4 + 1, kWords / 2, kWords - 1})
    if (const int got = memory.read(at); got != first)
      wrong("behind a read a kernel sees %d at word %zu, not %d", got, at, first);
}

void pipes_and_sockets(const Memory& memory, int first) {
  int pipe[2], sockets[2];
  HOLDS(::pipe(pipe) == 0);
  HOLDS(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  constexpr size_t kSome = 3 * kPage;
  char* const bytes = reinterpret_cast<char*>(memory.words);
  std::vector<int> got(kSome / sizeof(int));

  memory.number(first);
  HOLDS(::write(pipe[1], bytes, kSome) == kSome);
  HOLDS(::read(pipe[0], got.data(), kSome) == kSome);
  check_numbers(got.data(), 0, got.size(), first, "a pipe has");
  HOLDS(::send(sockets[0], bytes + kPage, kSome, 0) == kSome);
  // Over the end of what is here, and into what was only read.
  HOLDS(::recv(sockets[1], bytes + 60 * kPage, kSome, MSG_WAITALL) == kSome);
  check_numbers(memory.words + 60 * kPage / sizeof(int), 1024, 1024 + got.size(), first,
                "a socket gave");
  HOLDS(::write(pipe[1], "word", 4) == 4);
  HOLDS(::read(pipe[0], bytes + 4, 4) == 4);

  memory.number(first + 5);
  struct iovec parts[] = {{bytes + 200 * kPage, kPage}, {bytes + 3 * kPage, kPage}};
  struct iovec own = {got.data(), 2 * kPage};
  HOLDS(::process_vm_readv(::getpid(), &own, 1, parts, 2, 0) == 2 * kPage);
  check_numbers(got.data(), 200 * 1024, 201 * 1024, first + 5, "another process has");
  HOLDS(::writev(pipe[1], parts, 2) == 2 * kPage);
  HOLDS(::readv(pipe[0], parts, 2) == 2 * kPage);
  for (int& word : got) word = first + 9;
  HOLDS(::process_vm_writev(::getpid(), &own, 1, parts + 1, 1, 0) == kPage);
  HOLDS(memory.read(3 * 1024 + 1) == first + 9);
  HOLDS(memory.read(200 * 1024) == numbered(first + 5, 200 * 1024));
  int text = 0;
  std::memcpy(&text, "word", 4);
  HOLDS(memory.read(1) == text);
  for (const int each : {pipe[0], pipe[1], sockets[0], sockets[1]}) ::close(each);
}

// Random parts, read and written by the system and by the thread, which has blocked all signals.
void in_a_thread(CUcontext context, unsigned seed) {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  CU(cuCtxSetCurrent(context));
  const Memory memory(make_stream());
  const int file = file_of_memory();
  std::mt19937 random(seed);
  std::vector<int> expected(kWords), got(kWords);
  for (int round = 0; round < 25; ++round) {
    const int first = static_cast<int>(seed * 1'000'000) + round * 100'000;
    if (random() % 3 != 0) {
      memory.number(first);
      for (size_t at = 0; at < kWords; at += kStride) expected[at] = numbered(first, at);
    }
    for (int use = 0; use < 6; ++use) {
      const size_t begin = random() % kWords, count = 1 + random() % ((kWords - begin + 7) / 8);
      const size_t bytes = count * sizeof(int);
      switch (random() % 4) {
        case 0:
          HOLDS(::pwrite(file, memory.words + begin, bytes, 0) == static_cast<ssize_t>(bytes));
          HOLDS(::pread(file, got.data(), bytes, 0) == static_cast<ssize_t>(bytes));
          if (std::memcmp(got.data(), &expected[begin], bytes) != 0)
            wrong("seed %u, round %d: other contents were written", seed, round);
          break;
        case 1:
          for (size_t i = 0; i < count; ++i) expected[begin + i] = static_cast<int>(random());
          HOLDS(::pwrite(file, &expected[begin], bytes, 0) == static_cast<ssize_t>(bytes));
          HOLDS(::pread(file, memory.words + begin, bytes, 0) == static_cast<ssize_t>(bytes));
          break;
        case 2:
          if (std::memcmp(memory.words + begin, &expected[begin], bytes) != 0)
            wrong("seed %u, round %d: other contents were read", seed, round);
          break;
        case 3:
          memory.words[begin] = expected[begin] = static_cast<int>(random());
          break;
      }
    }
    for (int use = 0; use < 2; ++use) {
      const size_t at = random() % kWords;
      if (const int value = memory.read(at); value != expected[at])
        wrong("seed %u, round %d: a kernel sees %d at word %zu, not %d", seed, round, value, at,
              expected[at]);
    }
  }
  ::close(file);
}

}  // namespace

int main() {
  require_served_faults("FARGPU_MANAGED");
  begin(200);
  const CUcontext context = use_primary();
  const CUmodule module = load_kernels();
  store_strided = kernel_of(module, "store_strided");
  load = kernel_of(module, "load");
  const int file = file_of_memory();
  before_kernels(file);
  const Memory memory(make_stream());
  for (int round = 1; round <= 3; ++round) {
    step("files");
    files(memory, file, round * 100'000);
    step("pipes and sockets");
    pipes_and_sockets(memory, round * 100'000 + 50'000);
  }

  step("threads at once");
  // One looks all the time at what no kernel uses, and sees what the host writes there.
  const Memory told(make_stream());
  std::atomic<bool> over{false};
  std::thread looking([&] {
    for (int last = 0; !over;) {
      const int now = __atomic_load_n(told.words, __ATOMIC_ACQUIRE);
      if (now < last) wrong("%d was seen behind %d", now, last);
      last = now;
    }
  });
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(in_a_thread, context, seed);
  for (int value = 1; value <= 200; ++value) {
    __atomic_store_n(told.words, value, __ATOMIC_RELEASE);
    ::usleep(500);
  }
  for (std::thread& each : threads) each.join();
  over = true;
  looking.join();
  right();
}
