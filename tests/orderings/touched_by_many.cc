// Several threads use one piece of mapped memory at once: each has a stream of its own and words of
// its own in every page; kernels and host functions write others of them. Nobody ever sees a value
// that the order of calls rules out, whatever the others do to the same pages meanwhile.
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/orderings/check.h"
#include "tests/orderings/polling.h"

namespace {

constexpr unsigned kPages = 600, kStride = 1024, kThreads = 4;
constexpr double kSeconds = 8;
CUfunction store, load, store_strided, publish;
CUcontext context;
int* host;
CUdeviceptr device;
std::atomic<bool> over{false};
std::atomic<int> rounds_done{0};

// Words of a thread in a page: the kernel's, the host's, the host function's, one that is copied.
constexpr unsigned kKernel = 0, kHost = 1, kFunction = 2, kCopied = 3, kPerThread = 16;
size_t word(unsigned thread, unsigned page, unsigned which) {
  return size_t{page} * kStride + thread * kPerThread + which;
}
CUdeviceptr at(size_t word) { return device + word * sizeof(int); }

// As wait_somehow() counts them.
constexpr const char* kWaits[] = {"cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
                                  "cuStreamQuery"};

struct Function {
  unsigned thread, page;
  int expected, seen, value;
};

void use(unsigned thread) {
  CU(cuCtxSetCurrent(context));
  std::minstd_rand random(thread + 1);
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  const CUdeviceptr seen = device_memory(2 * sizeof(int));
  std::vector<int> mine(kPages, 0);  // what the host wrote last
  int last = 0;                      // what the kernel wrote last
  for (int round = 1; !over; ++round) {
    const auto begin_step = [thread, round](const char* name) { step(thread, name, round); };
    begin_step("the strided kernel");
    const int value = round * 1000;
    CUdeviceptr to = at(word(thread, 0, kKernel));
    unsigned count = kPages, stride = kStride;
    int first = value;
    void* parameters[] = {&to, &count, &stride, &first};
    CU(cuLaunchKernel(store_strided, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr));
    // While it may run: the host's own words.
    begin_step("words of the host");
    for (unsigned i = 0; i < 6; ++i) {
      const unsigned page = static_cast<unsigned>(random()) % kPages;
      int& here = host[word(thread, page, kHost)];
      if (here != mine[page])
        wrong("thread %u, round %d: the host's word of page %u is %d, not %d", thread, round, page,
              here, mine[page]);
      here = mine[page] = round * 7 + static_cast<int>(i);
    }
    const unsigned page = static_cast<unsigned>(random()) % kPages;
    Function function{thread, page, value + static_cast<int>(page), 0, -round};
    if (round % 3 == 0) {
      begin_step("the host function");
      CU(cuLaunchHostFunc(
          stream,
          [](void* data) {
            auto& work = *static_cast<Function*>(data);
            work.seen = host[word(work.thread, work.page, kKernel)];
            host[word(work.thread, work.page, kFunction)] = work.value;
          },
          &function));
      CU(launch(load, stream, seen, at(word(thread, page, kFunction))));
    }
    begin_step("the kernel that loads");
    CU(launch(load, stream, seen + sizeof(int), at(word(thread, page, kHost))));
    begin_step("the copy of a word");
    CU(cuMemcpyDtoDAsync(at(word(thread, page, kCopied)), at(word(thread, page, kKernel)),
                         sizeof(int), stream));
    const auto how = static_cast<unsigned>(random()) % 4;
    begin_step(kWaits[how]);
    wait_somehow(how, stream, event);
    begin_step("words of the kernel");
    last = value;
    if (round % 3 == 0 && function.seen != function.expected)
      wrong("thread %u, round %d: the function saw %d", thread, round, function.seen);
    for (unsigned i = 0; i < 6; ++i) {
      const unsigned other = static_cast<unsigned>(random()) % kPages;
      const int now = host[word(thread, other, kKernel)];
      if (now != last + static_cast<int>(other))
        wrong("thread %u, round %d: page %u has %d, not %d", thread, round, other, now,
              last + static_cast<int>(other));
    }
    if (host[word(thread, page, kCopied)] != last + static_cast<int>(page))
      wrong("thread %u, round %d: the copied word is %d", thread, round,
            host[word(thread, page, kCopied)]);
    begin_step("what the kernels have loaded");
    int values[2] = {};
    CU(cuMemcpyDtoHAsync(values, seen, sizeof values, stream));
    CU(cuStreamSynchronize(stream));
    if (round % 3 == 0 && values[0] != -round)
      wrong("thread %u, round %d: the kernel read %d of the function's", thread, round, values[0]);
    if (values[1] != mine[page])
      wrong("thread %u, round %d: the kernel read %d of the host's, not %d", thread, round,
            values[1], mine[page]);
    ++rounds_done;
  }
  step(thread, nullptr);
}

// A kernel publishes all the time, and this thread polls.
void watch() {
  CU(cuCtxSetCurrent(context));
  const CUstream stream = make_stream();
  const size_t flag_at = word(kThreads, 5, 0), data_at = word(kThreads, 90, 0);
  volatile int* const flag = host + flag_at;
  volatile int* const data = host + data_at;
  for (int round = 1; !over; ++round) {
    step(kThreads, "words of the publishing kernel", round);
    CUdeviceptr to = at(data_at), told = at(flag_at);
    unsigned count = 5, stride = 20 * kStride, pause = 2000;
    int rounds = 20;
    void* parameters[] = {&to, &count, &stride, &told, &rounds, &pause};
    *flag = 0;
    for (unsigned i = 0; i < count; ++i) data[i * stride] = 0;
    CU(cuLaunchKernel(publish, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    step(kThreads, "the flag", round);
    for (int now = 0; now != rounds;) {
      now = *flag;
      thread_steps[kThreads].seen = now;
      std::atomic_thread_fence(std::memory_order_acquire);
      for (unsigned i = 0; i < count; ++i) {
        const int word = data[i * stride];
        if (word < now) wrong("the flag says %d, word %u is %d", now, i, word);
      }
    }
    step(kThreads, "the end of the publishing kernel", round);
    CU(cuStreamSynchronize(stream));
    ++rounds_done;
  }
  step(kThreads, nullptr);
}

}  // namespace

int main() {
  start_with("FARGPU_MAPPED", "touched");  // also beside an adapter
  begin(80);                               // scripts/gpu-suite stops it after 90
  context = use_primary();
  const CUmodule module = load_kernels();
  store = kernel_of(module, "store");
  load = kernel_of(module, "load");
  store_strided = kernel_of(module, "store_strided");
  publish = kernel_of(module, "publish");
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, size_t{kPages} * kStride * sizeof(int), CU_MEMHOSTALLOC_DEVICEMAP));
  host = static_cast<int*>(memory);
  CU(cuMemHostGetDevicePointer(&device, memory, 0));
  step("threads");
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(use, t);
  if (host_can_poll()) threads.emplace_back(watch);
  const double end = now_seconds() + kSeconds;
  while (now_seconds() < end) usleep(50'000);
  over = true;
  for (std::thread& thread : threads) thread.join();
  note("%d rounds", rounds_done.load());
  CU(cuMemFreeHost(memory));
  right();
}
