// Mapped memory of which the host touches little: it sees what kernels wrote wherever it looks, in
// a system call, too, and kernels see what it wrote without having looked. While a kernel runs, a
// host that polls sees its progress, and what was written before it.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"
#include "tests/orderings/polling.h"

namespace {

constexpr unsigned kStride = 1024;  // words: one in each page
constexpr unsigned kPages = 2048;
constexpr size_t kBytes = size_t{kPages} * 4096;
CUfunction spin, store, load, store_strided, publish;

struct Mapped {
  explicit Mapped(size_t bytes = kBytes) {
    void* memory = nullptr;
    CU(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&device, memory, 0));
    host = static_cast<int*>(memory);
  }
  ~Mapped() { CU(cuMemFreeHost(host)); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  CUdeviceptr at(size_t word) const { return device + word * sizeof(int); }
  int* host;
  CUdeviceptr device = 0;
};

void write_pages(const Mapped& memory, CUstream stream, int value) {
  CUdeviceptr to = memory.device;
  unsigned count = kPages, stride = kStride;
  void* parameters[] = {&to, &count, &stride, &value};
  CU(cuLaunchKernel(store_strided, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
}

// Each way to wait, and few pages behind it.
void some_pages() {
  Mapped memory;
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  for (int round = 1; round <= 30; ++round) {
    write_pages(memory, stream, round * 10'000);
    wait_somehow(static_cast<unsigned>(round) % 4, stream, event);
    for (unsigned i = 0; i < 20; ++i) {
      const unsigned page = (static_cast<unsigned>(round) * 7919 + i * i * 31) % kPages;
      const int expected = round * 10'000 + static_cast<int>(page);
      if (memory.host[page * kStride] != expected)
        wrong("round %d: page %u has %d", round, page, memory.host[page * kStride]);
      memory.host[page * kStride + 1] = round;
    }
  }
  for (unsigned page = 0; page < kPages; ++page)
    HOLDS(memory.host[page * kStride] == 300'000 + static_cast<int>(page));
}

// The host writes pages that it has not looked at, in other words than the kernel.
void written_unseen() {
  Mapped memory;
  const CUdeviceptr seen = device_memory(sizeof(int));
  const CUstream stream = make_stream();
  for (int round = 1; round <= 20; ++round) {
    write_pages(memory, stream, round * 10'000);
    CU(cuCtxSynchronize());
    const unsigned page = static_cast<unsigned>(round) * 97 % kPages;
    memory.host[page * kStride + 5] = -round;
    CU(launch(load, stream, seen, memory.at(page * kStride + 5)));
    int value = 0;
    CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, stream));
    CU(cuStreamSynchronize(stream));
    if (value != -round) wrong("round %d: the kernel read %d", round, value);
    CU(launch(load, stream, seen, memory.at(page * kStride)));
    CU(cuMemcpyDtoHAsync(&value, seen, sizeof value, stream));
    CU(cuStreamSynchronize(stream));
    HOLDS(value == round * 10'000 + static_cast<int>(page));
    HOLDS(memory.host[page * kStride + 5] == -round);
  }
}

// The system reads and writes pages that nobody has looked at.
void system_calls() {
  Mapped memory;
  int ends[2];
  HOLDS(::pipe(ends) == 0);
  const CUdeviceptr seen = device_memory(sizeof(int));
  for (int round = 1; round <= 10; ++round) {
    write_pages(memory, nullptr, round * 10'000);
    CU(cuCtxSynchronize());
    const unsigned page = static_cast<unsigned>(round) * 131 % kPages;
    int* const words = memory.host + page * kStride;
    int sent = 0;
    HOLDS(::write(ends[1], words, sizeof(int)) == sizeof(int));
    HOLDS(::read(ends[0], &sent, sizeof sent) == sizeof sent);
    if (sent != round * 10'000 + static_cast<int>(page)) wrong("write(2) sent %d", sent);
    int* const other = memory.host + (page + 500) % kPages * kStride;
    HOLDS(::write(ends[1], &round, sizeof round) == sizeof round);
    HOLDS(::read(ends[0], other + 3, sizeof round) == sizeof round);
    CU(launch(load, nullptr, seen, memory.at(static_cast<size_t>(other - memory.host) + 3)));
    int value = 0;
    CU(cuMemcpyDtoH(&value, seen, sizeof value));
    if (value != round) wrong("the kernel read %d of what read(2) brought", value);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

// What the kernel stored before a flag is there when the flag is, wherever both are.
void poll(size_t data_at, size_t flag_at, unsigned stride) {
  constexpr unsigned kWords = 8;
  constexpr int kRounds = 25;
  Mapped memory;
  const CUstream stream = make_stream();
  volatile int* const flag = memory.host + flag_at;
  volatile int* const data = memory.host + data_at;
  int sum = 0;
  for (unsigned i = 0; i < kWords; ++i) sum += data[i * stride];  // they have been seen
  HOLDS(sum == 0 && *flag == 0);
  CUdeviceptr to = memory.at(data_at), told = memory.at(flag_at);
  unsigned count = kWords, pause = 3000;
  int rounds = kRounds;
  void* parameters[] = {&to, &count, &stride, &told, &rounds, &pause};
  CU(cuLaunchKernel(publish, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  int last = 0, seen = 0;
  while (last != kRounds) {
    const int now = *flag;
    std::atomic_thread_fence(std::memory_order_acquire);
    HOLDS(now >= last);
    if (now != last) ++seen;
    last = now;
    for (unsigned i = 0; i < kWords; ++i) {
      const int word = data[i * stride];
      if (word < now) wrong("the flag says %d, word %u is %d", now, i, word);
    }
  }
  if (seen < 2) wrong("the host saw %d steps of %d", seen, kRounds);
  CU(cuStreamSynchronize(stream));
}

// Several hosts poll, each its own flag, of kernels in streams of their own.
void many_poll() {
  constexpr unsigned kThreads = 3;
  const CUcontext context = use_primary();
  Mapped memory;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(context));
      const CUstream stream = make_stream();
      const size_t at = t * 200 * size_t{kStride};
      volatile int* const flag = memory.host + at + 4;
      volatile int* const data = memory.host + at + 50 * kStride;
      CUdeviceptr to = memory.at(at + 50 * kStride), told = memory.at(at + 4);
      unsigned count = 4, stride = kStride, pause = 2000;
      int rounds = 15;
      void* parameters[] = {&to, &count, &stride, &told, &rounds, &pause};
      CU(cuLaunchKernel(publish, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
      for (int now = 0; now != rounds;) {
        now = *flag;
        std::atomic_thread_fence(std::memory_order_acquire);
        for (unsigned i = 0; i < count; ++i) {
          const int word = data[i * kStride];
          if (word < now) wrong("thread %u: the flag says %d, word %u is %d", t, now, i, word);
        }
      }
      CU(cuStreamSynchronize(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A kernel that the host sees at work stands behind a copy to the host, whose bytes are there.
void poll_behind_a_copy() {
  constexpr size_t kCopied = 300'000;
  const CUstream stream = make_stream();
  const CUdeviceptr from = device_memory(kCopied);
  void* to = nullptr;
  CU(cuMemHostAlloc(&to, kCopied, 0));
  Mapped memory(4096);
  volatile int* const flag = memory.host;
  for (int round = 1; round <= 10; ++round) {
    CU(cuMemsetD8Async(from, static_cast<unsigned char>(round), kCopied, stream));
    CU(cuMemcpyDtoHAsync(to, from, kCopied, stream));
    CU(launch(store, stream, memory.device, round));
    CU(launch(spin, stream, 5000u));
    while (*flag != round) {
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    const auto* const bytes = static_cast<const unsigned char*>(to);
    for (size_t i = 0; i < kCopied; i += 4099)
      if (bytes[i] != round) wrong("round %d: byte %zu is %d", round, i, bytes[i]);
  }
  CU(cuStreamSynchronize(stream));
  CU(cuMemFreeHost(to));
}

// Copies whose host side it is, of every kind, and what the host sees of them.
void copies() {
  Mapped memory;
  const CUdeviceptr device = device_memory(kBytes);
  const CUstream stream = make_stream();
  for (int round = 1; round <= 8; ++round) {
    write_pages(memory, stream, round * 10'000);
    CU(cuMemcpyHtoDAsync(device, memory.host, kBytes, stream));
    CU(cuStreamSynchronize(stream));
    memory.host[7 * kStride] = 5;
    CU(cuMemcpyDtoH(memory.host + 7 * kStride, device + 7 * kStride * sizeof(int), 4));
    HOLDS(memory.host[7 * kStride] == round * 10'000 + 7);
    // A row, by pitches that fit no device copy.
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = device;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = memory.host + 100 * kStride + 1;
    rows.srcPitch = 4096;
    rows.dstPitch = 8192;
    rows.WidthInBytes = 8;
    rows.Height = 5;
    CU(cuMemcpy2DAsync(&rows, stream));
    CU(cuStreamSynchronize(stream));
    for (unsigned y = 0; y < 5; ++y)
      HOLDS(memory.host[(100 + 2 * y) * kStride + 1] == round * 10'000 + static_cast<int>(y));
    std::vector<int> all(kBytes / sizeof(int));
    CU(cuMemcpyDtoH(all.data(), device, kBytes));
    for (unsigned page = 0; page < kPages; page += 17)
      HOLDS(all[page * kStride] == round * 10'000 + static_cast<int>(page));
    CU(cuMemcpyHtoD(device, memory.host + 3 * kStride, 4));
    CU(cuMemcpyDtoH(all.data(), device, 4));
    HOLDS(all[0] == round * 10'000 + 3);
  }
}

// Freed while nobody has looked at it; what is there afterwards is new.
void freed_unseen() {
  for (int round = 1; round <= 10; ++round) {
    Mapped memory;
    write_pages(memory, nullptr, round);
    CU(cuCtxSynchronize());
    if (round % 2) HOLDS(memory.host[1000 * kStride] == round + 1000);
  }
}

}  // namespace

int main() {
  start_with("FARGPU_MAPPED", "touched");  // also beside an adapter
  begin(200);
  use_primary();
  const CUmodule module = load_kernels();
  spin = kernel_of(module, "spin");
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  store_strided = kernel_of(module, "store_strided");
  publish = kernel_of(module, "publish");
  step("some pages");
  some_pages();
  step("pages that are written unseen");
  written_unseen();
  step("system calls");
  system_calls();
  step("copies");
  copies();
  step("memory that is freed unseen");
  freed_unseen();
  if (host_can_poll()) {
    step("polling: the flag ahead of the data");
    poll(100 * kStride, 3, kStride);
    step("polling: the flag behind the data");
    poll(3, 300 * kStride, kStride);
    step("polling: one page");
    poll(1000, 8, 1);
    step("polling: several threads");
    many_poll();
    step("polling: behind a copy");
    poll_behind_a_copy();
  } else {
    note("the host cannot poll mapped memory here");
  }
  right();
}
