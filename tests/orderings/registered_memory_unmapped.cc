// An application may do with its pages what it likes after it has registered them: unmap them
// before they are unregistered, or never unregister them, protect them, cut their file. Work that
// does not use them goes on, and what is still there is the same at both ends.
#include <sys/mman.h>

#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kPage = 4096, kBytes = 1 << 20, kWords = kBytes / sizeof(int);

CUfunction store, load;
CUdeviceptr seen;
CUstream stream;

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// A kernel of a program that has registered memory, and uses none of it.
void other_work() {
  static int value = 100;
  const CUdeviceptr own = seen;
  int back = 0;
  CU(launch(store, stream, own, ++value));
  CU(cuMemcpyDtoHAsync(&back, own, sizeof back, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(back == value);
}

int read_by_kernel(const int* word) {
  int back = 0;
  CU(launch(load, stream, seen, address(word)));
  CU(cuMemcpyDtoHAsync(&back, seen, sizeof back, stream));
  CU(cuStreamSynchronize(stream));
  return back;
}

// Registered memory at addresses of its own, which device code has used: where no process has its
// libraries, and above what the simulated driver gives out (42 TiB, sim/base/settings.h).
struct Memory {
  explicit Memory(unsigned flags, int file = -1) {
    static uint64_t next = 0x3000'0000'0000;
    next += uint64_t{64} << 20;
    void* const memory = ::mmap(
        reinterpret_cast<void*>(next), kBytes, PROT_READ | PROT_WRITE,
        (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_FIXED_NOREPLACE, file, 0);
    HOLDS(memory != MAP_FAILED);
    words = static_cast<int*>(memory);
    for (size_t i = 0; i < kWords; ++i) words[i] = static_cast<int>(i);
    CU(cuMemHostRegister(memory, kBytes, flags));
    HOLDS(read_by_kernel(words + 5) == 5);
    CU(launch(store, stream, address(words + 6), 66));
    CU(cuStreamSynchronize(stream));
    HOLDS(words[6] == 66);
  }
  char* bytes() const { return reinterpret_cast<char*>(words); }
  // Whether its pages are still there natively decides nothing: either answer is right.
  void unregister() const { (void)cuMemHostUnregister(words); }
  int* words = nullptr;
};

void unmapped(unsigned flags) {
  step("unmapped and never unregistered");
  const Memory never(flags);
  ::munmap(never.words, kBytes);
  other_work();

  step("unmapped, then unregistered");
  const Memory late(flags);
  ::munmap(late.words, kBytes);
  other_work();
  late.unregister();
  other_work();

  step("other memory comes to the address, which may not be written");
  const Memory again(flags);
  ::munmap(again.words, kBytes);
  other_work();
  void* const guard = ::mmap(again.words, kBytes, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  HOLDS(guard == again.words);
  other_work();
  HOLDS(again.words[6] == 0);
  again.unregister();
  ::munmap(guard, kBytes);
  other_work();
}

void unmapped_in_part(unsigned flags) {
  step("a part is unmapped");
  const Memory memory(flags);
  ::munmap(memory.bytes() + kBytes / 2, kPage);
  ::munmap(memory.bytes() + kBytes - kPage, kPage);
  other_work();
  memory.words[1] = 11;
  int* const behind = memory.words + (kBytes / 2 + kPage) / sizeof(int);
  behind[3] = 33;
  HOLDS(read_by_kernel(memory.words + 1) == 11);
  HOLDS(read_by_kernel(behind + 3) == 33);
  CU(launch(store, stream, address(behind + 4), 44));
  CU(cuStreamSynchronize(stream));
  HOLDS(behind[4] == 44 && memory.words[6] == 66);
  memory.unregister();
  other_work();
}

void protected_for_a_while(unsigned flags) {
  step("protected for a while");
  const Memory memory(flags);
  memory.words[1] = 21;
  for (const int protection : {PROT_NONE, PROT_READ}) {
    ::mprotect(memory.words, kBytes, protection);
    other_work();
    if (protection != PROT_NONE) HOLDS(read_by_kernel(memory.words + 1) == 21);
    ::mprotect(memory.words, kBytes, PROT_READ | PROT_WRITE);
    HOLDS(memory.words[1] == 21 && memory.words[6] == 66);
    HOLDS(read_by_kernel(memory.words + 1) == 21);
  }
  memory.words[1] = 22;
  HOLDS(read_by_kernel(memory.words + 1) == 22);
  CU(cuMemHostUnregister(memory.words));
}

void file_cut(unsigned flags) {
  step("its file ends before it does");
  const int file = ::memfd_create("registered", 0);
  HOLDS(file >= 0 && ::ftruncate(file, kBytes) == 0);
  const Memory memory(flags, file);
  HOLDS(::ftruncate(file, kBytes / 2) == 0);
  other_work();
  memory.words[1] = 31;
  HOLDS(read_by_kernel(memory.words + 1) == 31);
  memory.unregister();
  other_work();
  ::munmap(memory.words, kBytes);
  ::close(file);
}

// Threads that free what others have registered, while work is sent all the time.
void beside_work(unsigned flags) {
  step("unmapped by another thread while work is sent");
  for (int round = 0; round < 6; ++round) {
    const Memory memory(flags);
    std::thread owner([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      ::munmap(memory.words, kBytes);
    });
    for (int i = 0; i < 30; ++i) other_work();
    owner.join();
    other_work();
    memory.unregister();
  }
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  const CUmodule kernels = load_kernels();
  store = kernel_of(kernels, "store");
  load = kernel_of(kernels, "load");
  stream = make_stream();
  seen = device_memory(sizeof(int));
  for (const unsigned flags : {0u, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    unmapped(flags);
    unmapped_in_part(flags);
    protected_for_a_while(flags);
    file_cut(flags);
    beside_work(flags);
  }
  right();
}
