// What host memory costs that device code may use: registered, mapped, and of a file.
//   host_memory [--mib N] [--file PATH] [ROW...]
// Rows: untouched, one_page, numbers, streams, and, with --file, file. A file that is not there or
// is shorter than N MiB (256) is written; it may be used again. Results are checked.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "need.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20, kPage = 4096;

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "host_memory: %s\n", what);
  std::exit(1);
}

template <typename Work>
double us_of(Work&& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Work>
double median_us(int runs, Work&& work) {
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) times.push_back(us_of([&] { work(run); }));
  return median(times);
}

__global__ void bump(int* word) { ++*word; }

__global__ void fill(int* to, size_t count, int value) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < count; at += step)
    to[at] = value;
}

__global__ void add_up(const unsigned* from, size_t count, unsigned long long* sum) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < count; at += step)
    mine += from[at];
  atomicAdd(sum, mine);
}

enum class Kind { kNone, kRegistered, kReadOnly, kRegisteredMapped, kPinnedMapped };
constexpr Kind kKinds[] = {Kind::kNone, Kind::kRegistered, Kind::kReadOnly, Kind::kRegisteredMapped,
                           Kind::kPinnedMapped};
const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"none", "registered", "registered_read_only",
                                    "registered_mapped", "pinned_mapped"};
  return kNames[static_cast<int>(kind)];
}

class HostMemory {
 public:
  HostMemory(Kind kind, size_t bytes) : kind_(kind), bytes_(bytes) {
    if (kind == Kind::kPinnedMapped) {
      NEED(cudaHostAlloc(&begin_, bytes, cudaHostAllocMapped));
      return;
    }
    begin_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin_ == MAP_FAILED) fail("no memory");
    std::memset(begin_, 1, bytes);
    if (kind == Kind::kRegistered) NEED(cudaHostRegister(begin_, bytes, cudaHostRegisterDefault));
    if (kind == Kind::kReadOnly) NEED(cudaHostRegister(begin_, bytes, cudaHostRegisterReadOnly));
    if (kind == Kind::kRegisteredMapped)
      NEED(cudaHostRegister(begin_, bytes, cudaHostRegisterMapped));
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() {
    if (kind_ == Kind::kPinnedMapped) {
      NEED(cudaFreeHost(begin_));
      return;
    }
    if (kind_ != Kind::kNone) NEED(cudaHostUnregister(begin_));
    munmap(begin_, bytes_);
  }
  int* words() const { return static_cast<int*>(begin_); }
  int* device() const {
    void* device;
    NEED(cudaHostGetDevicePointer(&device, begin_, 0));
    return static_cast<int*>(device);
  }

 private:
  Kind kind_;
  size_t bytes_;
  void* begin_ = nullptr;
};

// Launch and synchronise of a kernel that uses none of the memory: of the first after the host
// wrote all of it, of the next (medians of 5), and 2 s later (of 500).
void untouched(size_t bytes) {
  int* device;
  NEED(cudaMalloc(&device, bytes));
  const auto launch = [&](int = 0) {
    bump<<<1, 1>>>(device);
    NEED(cudaDeviceSynchronize());
  };
  launch();
  {
    HostMemory pageable(Kind::kNone, bytes);
    const auto copy = [&](int run) {
      std::memset(pageable.words(), run, bytes);
      return us_of([&] {
        NEED(cudaMemcpy(device, pageable.words(), bytes, cudaMemcpyHostToDevice));
        NEED(cudaDeviceSynchronize());
      });
    };
    std::vector<double> times;
    for (int run = 0; run < 5; ++run) times.push_back(copy(run));
    std::printf("untouched pageable copy %.1f us\n", median(times));
  }
  for (const Kind kind : kKinds) {
    HostMemory memory(kind, bytes);
    std::vector<double> firsts, seconds;
    for (int run = 0; run < 5; ++run) {
      std::memset(memory.words(), run, bytes);
      firsts.push_back(us_of(launch));
      seconds.push_back(us_of(launch));
    }
    const Clock::time_point end = Clock::now() + std::chrono::seconds(kind == Kind::kNone ? 0 : 2);
    while (Clock::now() < end) launch();
    std::printf("untouched %s first %.1f us, next %.1f us, steady %.1f us\n", name_of(kind),
                median(firsts), median(seconds), median_us(500, launch));
  }
  NEED(cudaFree(device));
}

// A kernel writes all of the memory, and the host reads one page of it: the median of 9.
void one_page(size_t bytes) {
  const size_t count = bytes / sizeof(int);
  const auto write = [&](int* to, int value) {
    fill<<<1024, 256>>>(to, count, value);
    NEED(cudaDeviceSynchronize());
  };
  int* plain;
  NEED(cudaMalloc(&plain, bytes));
  write(plain, 0);
  std::printf("one_page device_memory %.1f us\n",
              median_us(9, [&](int run) { write(plain, run); }));
  NEED(cudaFree(plain));
  for (const Kind kind : {Kind::kRegisteredMapped, Kind::kPinnedMapped}) {
    HostMemory memory(kind, bytes);
    int* const device = memory.device();
    write(device, -1);
    const auto round = [&](int run) {
      const size_t page = static_cast<size_t>(run) * 1117 % (bytes / kPage) * (kPage / sizeof(int));
      write(device, run);
      for (size_t word = 0; word < kPage / sizeof(int); ++word)
        if (memory.words()[page + word] != run) fail("one_page: a wrong word");
    };
    for (int run = 0; run < 3; ++run) round(run);
    std::printf("one_page %s kernel %.1f us, kernel and page %.1f us\n", name_of(kind),
                median_us(9, [&](int run) { write(device, run); }), median_us(9, round));
    for (size_t at = 0; at < count; ++at)
      if (memory.words()[at] != 8) fail("one_page: a wrong word at the end");
  }
}

// Whole numbers, of which a new value differs in some bytes from the old one: the launch behind the
// host's write of all, and the host's read of all that a kernel has written; medians of 5.
void numbers(size_t bytes) {
  const size_t count = bytes / sizeof(int);
  int* device;
  NEED(cudaMalloc(&device, sizeof(int)));
  for (const Kind kind : {Kind::kRegisteredMapped, Kind::kPinnedMapped}) {
    HostMemory memory(kind, bytes);
    int* const words = memory.words();
    const auto launch = [&] {
      bump<<<1, 1>>>(device);
      NEED(cudaDeviceSynchronize());
    };
    const auto read = [&](int expected) {
      for (size_t at = 0; at < count; ++at)
        if (words[at] != expected) fail("numbers: a wrong word");
    };
    std::vector<double> launches, reads;
    for (int run = 0; run < 6; ++run) {
      for (size_t at = 0; at < count; ++at) words[at] = static_cast<int>(at) + run;
      launches.push_back(us_of(launch));
      fill<<<1024, 256>>>(memory.device(), count, 1000 + run);
      NEED(cudaDeviceSynchronize());
      reads.push_back(us_of([&] { read(1000 + run); }));
    }
    launches.erase(launches.begin()), reads.erase(reads.begin());  // all of it is new then
    std::printf("numbers %s launch %.1f us, read %.1f us\n", name_of(kind), median(launches),
                median(reads));
  }
  NEED(cudaFree(device));
}

// Four streams, each of which computes a quarter of an array and copies it to registered memory,
// ten times over: beside one stream, and the copy alone.
void streams(size_t bytes) {
  constexpr int kStreams = 4, kRepeats = 10;
  const size_t count = bytes / sizeof(int), part = count / kStreams;
  HostMemory memory(Kind::kRegisteredMapped, bytes);
  int* device;
  NEED(cudaMalloc(&device, bytes));
  cudaStream_t handles[kStreams];
  for (cudaStream_t& stream : handles) NEED(cudaStreamCreate(&stream));
  cudaEvent_t begin, end;
  NEED(cudaEventCreateWithFlags(&begin, cudaEventBlockingSync));
  NEED(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  const auto timed_ms = [&](auto&& work) {
    float ms = 0;
    NEED(cudaEventRecord(begin, nullptr));
    work();
    NEED(cudaEventRecord(end, nullptr));
    NEED(cudaEventSynchronize(end));
    NEED(cudaEventElapsedTime(&ms, begin, end));
    return ms;
  };
  const auto copy_all = [&] {
    NEED(cudaMemcpyAsync(memory.words(), device, bytes, cudaMemcpyDeviceToHost, handles[0]));
  };
  const double all = us_of([&] {
    const float copy = timed_ms(copy_all);
    const float one_stream = timed_ms([&] {
      for (int run = 0; run < kRepeats; ++run) {
        fill<<<512, 512>>>(device, count, run);
        NEED(cudaMemcpy(memory.words(), device, bytes, cudaMemcpyDeviceToHost));
      }
    });
    std::memset(memory.words(), 0xff, bytes);
    NEED(cudaMemset(device, 0, bytes));
    const float several = timed_ms([&] {
      for (int run = 0; run < kRepeats; ++run) {
        for (int i = 0; i < kStreams; ++i)
          fill<<<128, 512, 0, handles[i]>>>(device + i * part, part, 100 + run);
        for (int i = 0; i < kStreams; ++i)
          NEED(cudaMemcpyAsync(memory.words() + i * part, device + i * part, part * sizeof(int),
                               cudaMemcpyDeviceToHost, handles[i]));
      }
    });
    for (size_t at = 0; at < count; ++at)
      if (memory.words()[at] != 100 + kRepeats - 1) fail("streams: a wrong word");
    std::printf("streams copy %.2f ms, one stream %.2f ms, four streams %.2f ms\n", copy,
                one_stream / kRepeats, several / kRepeats);
  });
  std::printf("streams whole %.3f s\n", all / 1e6);
  for (cudaStream_t stream : handles) NEED(cudaStreamDestroy(stream));
  NEED(cudaFree(device));
}

unsigned word_of(size_t mib, size_t word) { return static_cast<unsigned>(mib + word); }

// A file that is mapped for reading, registered as such, and brought to the device in pieces, each
// of which a kernel adds up, as programs load weights: all of it together.
void file(const std::string& path, size_t bytes) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || static_cast<size_t>(status.st_size) < bytes) {
    const int to = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::vector<unsigned> piece(kMiB / sizeof(unsigned));
    for (size_t at = 0; at < bytes; at += kMiB) {
      for (size_t i = 0; i < piece.size(); ++i) piece[i] = word_of(at / kMiB, i);
      if (to < 0 || write(to, piece.data(), kMiB) != static_cast<ssize_t>(kMiB))
        fail("the file cannot be written");
    }
    close(to);
  }
  const int from = open(path.c_str(), O_RDONLY);
  void* const begin = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, from, 0);
  if (from < 0 || begin == MAP_FAILED) fail("the file cannot be mapped");
  constexpr size_t kPiece = 64 * kMiB;
  unsigned* device;
  unsigned long long *sum, result = 0, expected = 0;
  NEED(cudaMalloc(&device, bytes));
  NEED(cudaMalloc(&sum, sizeof *sum));
  NEED(cudaMemset(sum, 0, sizeof *sum));
  const double registering = us_of([&] {
    NEED(cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterReadOnly));
  });
  const double loading = us_of([&] {
    for (size_t at = 0; at < bytes; at += kPiece) {
      const size_t size = std::min(kPiece, bytes - at);
      unsigned* const to = device + at / sizeof(unsigned);
      NEED(cudaMemcpyAsync(to, static_cast<char*>(begin) + at, size, cudaMemcpyHostToDevice));
      add_up<<<256, 256>>>(to, size / sizeof(unsigned), sum);
    }
    NEED(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
  });
  const auto launch = [&](int) {
    add_up<<<1, 1>>>(device, 1, sum);
    NEED(cudaDeviceSynchronize());
  };
  const double launching = median_us(100, launch);
  for (size_t at = 0; at < bytes; at += kMiB)
    for (size_t i = 0; i < kMiB / sizeof(unsigned); ++i) expected += word_of(at / kMiB, i);
  if (result != expected) fail("file: a wrong sum");
  const double ending = us_of([&] { NEED(cudaHostUnregister(begin)); });
  std::printf("file registration %.3f s, copies and kernels %.3f s, launch %.1f us, end %.3f s\n",
              registering / 1e6, loading / 1e6, launching, ending / 1e6);
  munmap(begin, bytes);
  close(from);
  NEED(cudaFree(device));
}

}  // namespace

int main(int argc, char** argv) {
  size_t bytes = 256 * kMiB;
  std::string path;
  std::vector<std::string> rows;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--mib" && i + 1 < argc)
      bytes = std::strtoull(argv[++i], nullptr, 10) * kMiB;
    else if (word == "--file" && i + 1 < argc)
      path = argv[++i];
    else
      rows.push_back(word);
  }
  if (rows.empty()) {
    rows = {"untouched", "one_page", "numbers", "streams"};
    if (!path.empty()) rows.emplace_back("file");
  }
  if (bytes == 0) fail("--mib needs a number of MiB");
  for (const std::string& row : rows) {
    if (row == "untouched")
      untouched(bytes);
    else if (row == "one_page")
      one_page(bytes);
    else if (row == "numbers")
      numbers(bytes);
    else if (row == "streams")
      streams(bytes);
    else if (row == "file" && !path.empty())
      file(path, bytes);
    else
      fail("rows: untouched, one_page, numbers, streams, file (with --file PATH)");
    std::fflush(stdout);
  }
  return 0;
}
