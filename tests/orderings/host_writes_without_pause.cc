// A thread of the host stores one number after another, each into one word and then into a second
// one, without a pause. A kernel that is launched meanwhile and reads the second word first never
// finds the first one older: wherever both lie.
//
// "rates N": each case is looked at N times, and the program says how often it was wrong.
// again: FARGPU_MAPPED=eager
#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/orderings/served_faults.h"

namespace {

CUfunction load_both;
CUstream stream;
CUdeviceptr seen;
int looks = 40;
bool rates = false;
unsigned number = 0;  // of the thread that stores

enum class Kind { kMapped, kPinned, kRegistered, kSmall, kTiny };
constexpr Kind kKinds[] = {Kind::kMapped, Kind::kPinned, Kind::kRegistered, Kind::kSmall,
                           Kind::kTiny};
const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"mapped", "pinned", "registered", "registered, open",
                                    "registered, 24 bytes of a page"};
  return kNames[static_cast<int>(kind)];
}

// `offset`: where device code has a word.
struct Memory {
  explicit Memory(Kind kind) : is_ours(kind == Kind::kMapped || kind == Kind::kPinned) {
    const size_t bytes = kind == Kind::kRegistered ? 512 << 10 : 160 << 10;
    if (is_ours) {
      CU(cuMemHostAlloc(&memory, bytes, kind == Kind::kMapped ? CU_MEMHOSTALLOC_DEVICEMAP : 0));
    } else {
      void* const made =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      HOLDS(made != MAP_FAILED);
      memory = static_cast<char*>(made) + (kind == Kind::kTiny ? 1000 : 0);
      CU(cuMemHostRegister(memory, kind == Kind::kTiny ? 24 : bytes, 0));
    }
    CU(cuMemHostGetDevicePointer(&device, memory, 0));
  }
  ~Memory() { CU(is_ours ? cuMemFreeHost(memory) : cuMemHostUnregister(memory)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  unsigned* word(size_t offset) const {
    return reinterpret_cast<unsigned*>(static_cast<char*>(memory) + offset);
  }
  const bool is_ours;
  void* memory = nullptr;
  CUdeviceptr device = 0;
};

struct Word {
  const Memory& memory;
  size_t offset;
};

void judge(Kind kind, const char* where, const Word& first, const Word& second) {
  const std::string name = std::string(name_of(kind)) + ": " + where;
  step(name.c_str());
  unsigned* const one = first.memory.word(first.offset);
  unsigned* const two = second.memory.word(second.offset);
  *two = *one = number;
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) {
      ++number;
      __atomic_store_n(one, number, __ATOMIC_RELEASE);
      __atomic_store_n(two, number, __ATOMIC_RELEASE);
    }
  });
  int old = 0;
  for (int look = 0; look < looks; ++look) {
    CU(launch(load_both, stream, seen, second.memory.device + second.offset,
              first.memory.device + first.offset));
    unsigned there[2];
    CU(cuMemcpyDtoHAsync(there, seen, sizeof there, stream));
    CU(cuStreamSynchronize(stream));
    if (there[1] >= there[0]) continue;
    ++old;
    if (rates) continue;
    wrong("%s: in look %d the kernel saw %u behind %u", name.c_str(), look, there[0], there[1]);
  }
  is_over = true;
  writer.join();
  if (old != 0) std::printf("%4d old of %d: %s\n", old, looks, name.c_str());
  step("the next case");
}

void all_of(Kind kind) {
  const Memory one(kind), two(kind);
  if (kind != Kind::kTiny) {
    judge(kind, "two pages, the first word below", {one, 64}, {one, 4096 * 9 + 64});
    judge(kind, "two pages, the first word above", {one, 4096 * 9 + 64}, {one, 64});
    judge(kind, "one page, the first word above", {one, 1024}, {one, 64});
  }
  judge(kind, "two allocations", {one, 0}, {two, 0});
  judge(kind, "two allocations in turn", {two, 0}, {one, 0});
}

}  // namespace

int main(int argc, char** argv) {
  begin(250);
  rates = argc > 2 && std::strcmp(argv[1], "rates") == 0;
  if (rates) looks = std::atoi(argv[2]), alarm(1500);
  if (!rates && !serves_faults_of_writes()) {
    note("skipped: the system does not let this process serve its faults (userfaultfd)");
    right();
  }
  use_primary();
  load_both = kernel_of(load_kernels(), "load_both");
  stream = make_stream();
  seen = device_memory(8);
  for (const Kind kind : kKinds) all_of(kind);
  right();
}
