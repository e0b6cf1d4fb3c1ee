// A kernel that runs waits for a flag in host memory and then reads what the host stored before the
// flag: wherever both lie, whichever thread stores them, and whatever other threads call meanwhile.
// A kernel that is launched behind both sees both.
//
// "rates N": each case is done N times, those that are not promised (docs/transports.md), too, and
// the program says how often each was wrong.
// again: FARGPU_MAPPED=eager
#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 512 << 10;
constexpr unsigned kGiveUp = 2'000'000;  // microseconds
constexpr unsigned kNever = 77;          // stands for the give-up time
CUfunction behind_flag, store;
CUstream waiting[2], other;
CUdeviceptr seen, elsewhere;
bool rates = false;
int rounds = 3;
unsigned next_value = 0;

// Host memory that device code uses, of one of several kinds.
enum class Kind { kMapped, kPinned, kRegistered, kSmall };
constexpr Kind kKinds[] = {Kind::kMapped, Kind::kPinned, Kind::kRegistered, Kind::kSmall};
const char* name_of_kind(Kind kind) {
  constexpr const char* kNames[] = {"mapped", "pinned", "registered", "registered, open"};
  return kNames[static_cast<int>(kind)];
}

struct Memory {
  explicit Memory(Kind kind) : kind(kind), bytes(kind == Kind::kSmall ? 160 << 10 : kBytes) {
    void* memory = nullptr;
    if (kind == Kind::kMapped || kind == Kind::kPinned) {
      CU(cuMemHostAlloc(&memory, bytes, kind == Kind::kMapped ? CU_MEMHOSTALLOC_DEVICEMAP : 0));
    } else {
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      HOLDS(memory != MAP_FAILED);
      CU(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    }
    std::memset(memory, 0, bytes);
    host = static_cast<unsigned*>(memory);
    CU(cuMemHostGetDevicePointer(&device, memory, 0));
  }
  ~Memory() {
    if (kind == Kind::kMapped || kind == Kind::kPinned) {
      CU(cuMemFreeHost(host));
    } else {
      CU(cuMemHostUnregister(host));
      munmap(host, bytes);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const Kind kind;
  const size_t bytes;
  unsigned* host = nullptr;
  CUdeviceptr device = 0;
};

// Offsets in bytes; the data is `words` words.
struct Place {
  const char* name;
  size_t data, flag;
  unsigned words;
  bool apart;     // the flag lies in another allocation
  bool promised;  // that a kernel that runs sees the data behind the flag
};
constexpr Place kPlaces[] = {
    {"one word of 8 bytes, flag above", 64, 68, 1, false, true},
    {"one word of 8 bytes, flag below", 68, 64, 1, false, true},
    {"one line, flag above", 64, 100, 1, false, true},
    {"one line, 13 words, flag above", 64, 116, 13, false, true},
    {"one line, flag below", 100, 64, 1, false, false},
    {"one line, 13 words, flag below", 72, 64, 13, false, false},
    {"behind 16 KiB", 4160, 4160 + (16 << 10), 4 << 10, false, true},
    {"ahead of 16 KiB", 4164, 4160, 4 << 10, false, false},
    {"two lines, flag above", 64, 128, 1, false, true},
    {"two lines, flag below", 128, 64, 1, false, false},
    {"two lines, 16 words, flag below", 128, 64, 16, false, true},
    {"two pages, flag above", 64, 4096 + 64, 1, false, true},
    {"two pages, flag below", 4096 + 64, 64, 1, false, false},
    {"two pages, 4 words, flag below", 4096 + 64, 64, 4, false, true},
    {"two pages, 4 KiB, flag below", 8192, 64, 1 << 10, false, true},
    {"two blocks, flag above", 64, (128 << 10) + 64, 1, false, true},
    {"two blocks, flag below", (128 << 10) + 64, 64, 1, false, false},
    {"two blocks, 64 KiB, flag above", 0, (128 << 10) + 64, 16 << 10, false, true},
    {"two blocks, 64 KiB, flag below", 80 << 10, 64, 16 << 10, false, true},
    {"two allocations, 64 KiB, flag in the first", 64, 64, 16 << 10, true, true},
    {"two allocations, 64 KiB, flag in the second", 64, 64, 16 << 10, true, true},
};

// Who stores, and what is called meanwhile.
enum class Way { kThenQuery, kThenLaunch, kThenWait, kOtherQueries, kOtherLaunches };
constexpr Way kWays[] = {Way::kThenQuery, Way::kThenLaunch, Way::kThenWait, Way::kOtherQueries,
                         Way::kOtherLaunches};
const char* name_of_way(Way way) {
  constexpr const char* kNames[] = {"then a query", "then launches", "then a wait",
                                    "while others query", "while others launch"};
  return kNames[static_cast<int>(way)];
}
bool is_by_other(Way way) { return way == Way::kOtherQueries || way == Way::kOtherLaunches; }

struct Case {
  unsigned* data;
  unsigned* flag;
  CUdeviceptr data_device, flag_device;
  unsigned words;
};

// All bytes of a word change.
unsigned new_value() {
  next_value = next_value % 250 + 1;
  return next_value * 0x01010101u;
}

void write(const Case& at, unsigned value) {
  for (unsigned i = 0; i < at.words; ++i) at.data[i] = value;
  __atomic_store_n(at.flag, value, __ATOMIC_RELEASE);
}

CUresult launch_waiting(const Case& at, unsigned value, unsigned which, CUstream stream) {
  // Some words of many are read: the first ones and the last ones matter most.
  const unsigned stride = at.words > 256 ? at.words / 128 : 1;
  const unsigned words = (at.words + stride - 1) / stride;
  return launch(behind_flag, stream, at.flag_device, value, at.data_device, words, stride,
                seen + which * 16, kGiveUp);
}

// What the kernel counted.
unsigned counted(unsigned which, CUstream stream) {
  unsigned there[3];
  CU(cuMemcpyDtoHAsync(there, seen + which * 16, sizeof there, stream));
  CU(cuStreamSynchronize(stream));
  return there[0] == 0 ? kNever : there[1];
}

// Until the kernels have ended.
void call_meanwhile(Way way, unsigned kernels) {
  for (int i = 0;; ++i) {
    bool all = true;
    if (way == Way::kThenLaunch || way == Way::kOtherLaunches) {
      CU(launch(store, other, elsewhere, i));
      if (i % 4 != 3) continue;
    }
    for (unsigned k = 0; k < kernels; ++k) {
      const CUresult result = cuStreamQuery(waiting[k]);
      if (result == CUDA_ERROR_NOT_READY)
        all = false;
      else
        CU(result);
    }
    if (all) return;
  }
}

// One round of one or two producers, each with a flag of its own. Returns what the first kernel
// that was wrong has counted.
unsigned one_round(const std::vector<Case>& cases, Way way, int round) {
  const unsigned value = new_value();
  const auto kernels = static_cast<unsigned>(cases.size());
  for (unsigned k = 0; k < kernels; ++k) CU(launch_waiting(cases[k], value, k, waiting[k]));
  std::vector<std::thread> writers;
  for (unsigned k = 0; k < kernels; ++k) {
    const auto pause_and_write = [&cases, k, value, round] {
      const double end = now_seconds() + 20e-6 * (round % 12);
      while (now_seconds() < end) {
      }
      write(cases[k], value);
    };
    if (is_by_other(way))
      writers.emplace_back(pause_and_write);
    else
      pause_and_write();
  }
  if (way != Way::kThenWait) call_meanwhile(way, kernels);
  for (std::thread& writer : writers) writer.join();
  unsigned result = 0;
  for (unsigned k = 0; k < kernels; ++k) {
    CU(cuStreamSynchronize(waiting[k]));
    const unsigned old = counted(k, waiting[k]);
    if (result == 0) result = old;
    // The next kernel sees everything.
    CU(launch_waiting(cases[k], value, k, other));
    const unsigned later = counted(k, other);
    if (later != 0) wrong("%s: a kernel launched later saw %u old words", current_step, later);
    HOLDS(*cases[k].flag == value && cases[k].data[cases[k].words - 1] == value);
  }
  return result;
}

void judge(const char* kind, const std::string& what, Way way, const std::vector<Case>& cases,
           bool promised) {
  if (!promised && !rates) return;
  const std::string name = std::string(kind) + ": " + what + ", " + name_of_way(way);
  step(name.c_str());
  int old = 0, never = 0;
  for (int round = 0; round < rounds; ++round) {
    const unsigned result = one_round(cases, way, round);
    if (result == kNever)
      ++never;
    else
      old += result != 0;
    if (result == 0 || rates) continue;
    if (result == kNever) wrong("%s: the kernel never saw the flag", name.c_str());
    wrong("%s, round %d: the kernel saw the flag and %u old words", name.c_str(), round, result);
  }
  if (rates && old + never != 0)
    std::printf("%4d old, %d never, of %d%s: %s\n", old, never, rounds,
                promised ? "" : ", not promised", name.c_str());
  step("the next case");
}

Case case_of(const Place& place, const Memory& data, const Memory& flag) {
  return {data.host + place.data / sizeof(unsigned), flag.host + place.flag / sizeof(unsigned),
          data.device + place.data, flag.device + place.flag, place.words};
}

void all_of(Kind kind) {
  const char* const name = name_of_kind(kind);
  Memory first(kind), second(kind);
  bool flag_first = true;
  for (const Place& place : kPlaces) {
    const Memory& lower = first.host < second.host ? first : second;
    const Memory& upper = first.host < second.host ? second : first;
    const Memory& data = place.apart && flag_first ? upper : lower;
    const Memory& flag = place.apart && !flag_first ? upper : lower;
    if (place.apart) flag_first = !flag_first;
    const Case at = case_of(place, data, flag);
    // What another thread calls meanwhile may divide the data of a line.
    const bool may_be_divided = at.flag < at.data && place.words > 1;
    for (const Way way : kWays) {
      judge(name, place.name, way, {at}, place.promised && !(may_be_divided && is_by_other(way)));
    }
  }
  // Two producers, whose data and flags lie in turn.
  for (const unsigned words : {16u, 8u << 10}) {
    const size_t bytes = words * sizeof(unsigned);
    const Place one = {"", 0, 128 + 2 * bytes, words, false, true};
    const Place two = {"", 64 + bytes, 192 + 2 * bytes, words, false, true};
    for (const Way way : kWays)
      judge(name, "two producers, " + std::to_string(bytes) + " bytes", way,
            {case_of(one, first, first), case_of(two, first, first)}, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  begin(250);
  rates = argc > 2 && std::strcmp(argv[1], "rates") == 0;
  if (rates) rounds = std::atoi(argv[2]), alarm(1500);
  use_primary();
  const CUmodule module = load_kernels();
  behind_flag = kernel_of(module, "words_behind_flag");
  store = kernel_of(module, "store");
  for (CUstream& stream : waiting) stream = make_stream();
  other = make_stream();
  seen = device_memory(64), elsewhere = device_memory(64);
  // Kernels are loaded at their first launch.
  CU(launch(store, other, elsewhere, 1));
  CU(launch(behind_flag, other, elsewhere, 1u, elsewhere, 0u, 1u, seen, 1u));
  CU(cuStreamSynchronize(other));
  for (const Kind kind : kKinds) all_of(kind);
  right();
}
